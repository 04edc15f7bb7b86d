# Texts, one after another, as a C array that ends with a zero: cmake -DOUT=file.c -DNAME=hd_array -DFILES="a;b" -P
# embed.cmake. Bytes as numbers: no limit on string lengths.
set(bytes "")
foreach(file ${FILES})
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," text "${hex}")
  string(REGEX REPLACE "(0x0a,)" "\\1\n" text "${text}")
  string(APPEND bytes "${text}")
endforeach()
set(text "// Made by runtime/embed.cmake.\nextern const unsigned char ${NAME}[];\n")
file(WRITE ${OUT} "${text}const unsigned char ${NAME}[] = {\n${bytes}0};\n")
