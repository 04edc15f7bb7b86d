# Turns the templates into C: cmake -DOUT=file.c -DFILES="a.cu;b.cu" -P embed.cmake. Bytes as numbers: no limit on
# string lengths.
set(text "// Made by codegen/cuda/embed.cmake from codegen/cuda/templates.\n#include \"codegen/cuda/templates.h\"\n")
set(rows "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(0x0a,)" "\\1\n" bytes "${bytes}")
  string(APPEND text "static const char ${name}_text[] = {\n${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", ${name}_text},\n")
endforeach()
string(APPEND text "const CudaTemplate hd_cuda_template_list[] = {\n${rows}    {0, 0},\n};\n")
file(WRITE ${OUT} "${text}")
