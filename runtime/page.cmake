# The page of timelines as C, for the compiler and the runtime library: cmake -DOUT=file.c -DFILE=timeline.html -P
# page.cmake. Bytes as numbers: no limit on string lengths.
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x0a,)" "\\1\n" bytes "${bytes}")
set(text "// Made by runtime/page.cmake from runtime/timeline.html.\nextern const unsigned char hd_timeline_page[];\n")
file(WRITE ${OUT} "${text}const unsigned char hd_timeline_page[] = {\n${bytes}0};\n")
