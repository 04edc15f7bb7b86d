# The text of the headers that programs are compiled with, as C: cmake -DOUT=file.c -DFILES="a.h;b.h" -P
# interface.cmake. The compiler and the runtime library both hold it, so that heddlec notices headers or a library that
# are not its own (codegen/build.c).
set(text "// Made by runtime/interface.cmake.\n")
string(APPEND text "extern const unsigned char hd_interface[];\nextern const unsigned long hd_interface_bytes;\n")
string(APPEND text "const unsigned char hd_interface[] = {\n")
foreach(file ${FILES})
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(0x0a,)" "\\1\n" bytes "${bytes}")
  string(APPEND text "${bytes}")
endforeach()
string(APPEND text "};\nconst unsigned long hd_interface_bytes = sizeof hd_interface;\n")
file(WRITE ${OUT} "${text}")
