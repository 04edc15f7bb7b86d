#ifndef FRONTEND_BUILTINS_BUILTIN_MODULES_H
#define FRONTEND_BUILTINS_BUILTIN_MODULES_H
extern const char hd_prelude[]; // what every model can use, and the values of settings that a file leaves out
#endif
