# The functions of libsodium that the runtime uses, as one object with those names and no other, from the static
# library: the runtime then has it within itself, compiled programs and installed compilers need no libsodium, and
# another copy in the same process does no harm. cmake -DOUT=file.o -DLIBRARY=libsodium.a -DCC=cc -DOBJCOPY=objcopy -P
# sodium.cmake
set(names sodium_init sodium_memcmp randombytes_buf crypto_generichash_init crypto_generichash_update
    crypto_generichash_final)
list(TRANSFORM names PREPEND -Wl,--undefined= OUTPUT_VARIABLE wanted)
list(TRANSFORM names PREPEND --keep-global-symbol= OUTPUT_VARIABLE kept)
execute_process(COMMAND ${CC} -r -nostdlib -no-pie ${wanted} -o ${OUT} ${LIBRARY} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${OBJCOPY} ${kept} ${OUT} COMMAND_ERROR_IS_FATAL ANY)
