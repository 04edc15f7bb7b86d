// Which files --data and --val mean.
#ifndef RUNTIME_DATA_FILES_H
#define RUNTIME_DATA_FILES_H
#include <stdbool.h>

typedef struct { int n; const char **at; } Names; // as they were given, in that order
typedef struct { int n; char **at; } FileList;

// The files that `given` names, each once, sorted by their names' bytes. A name is a file, a folder (all files in it,
// except hidden ones), a pattern of glob(7) unless a file is called that, or @LIST: a file with a name a line, relative
// to the folder of LIST; in it, lines that are empty or begin with # are skipped. false after hd_fail: nothing fits a
// name, a folder holds no file, a file was named twice.
bool hd_files_expand(FileList *f, Names given);
void hd_files_free(FileList *f);
#endif
