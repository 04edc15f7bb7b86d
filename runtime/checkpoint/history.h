// The losses and norms of the last steps, by which a program knows outliers (HdStep.history), in the metadata of a
// checkpoint: as numbers with blanks between them.
#ifndef RUNTIME_CHECKPOINT_HISTORY_H
#define RUNTIME_CHECKPOINT_HISTORY_H
#include "runtime/heddle.h"

static inline bool hd_history_kept(const HdProgram *p) { return p->skip_z[0] > 0 || p->skip_z[1] > 0; }
bool hd_history_read(HdExec *x, float history[HD_HISTORY_Z]); // waits for the steps; false after hd_fail
enum { HD_HISTORY_TEXT = 16 * HD_HISTORY_Z };
void hd_history_text(const float history[HD_HISTORY_Z], char text[HD_HISTORY_TEXT]);
// Into the program's storage. path: of the checkpoint that has the text. false after hd_fail
bool hd_history_write(HdExec *x, const char *path, const char *text);
#endif
