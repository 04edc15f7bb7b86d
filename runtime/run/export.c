// --export: the weights as a file, or a folder as Hugging Face has it.
#include "runtime/checkpoint/hub.h"
#include "runtime/checkpoint/keep.h"
#include "runtime/checkpoint/state.h"
#include "runtime/run/run.h"

bool hd_run_export(HdExec *x, const Options *o, bool rank_0) {
    static const char *const names[] = {[HD_F32] = "float32", [HD_BF16] = "bfloat16", [HD_F16] = "float16"};
    char path[HD_CHECKPOINT_PATH];
    const bool averaged = o->weights != NULL; // --weights=ema
    if (!o->as) return hd_state_export(x, o->export_to, o->export_dtype, averaged);
    return hd_hub_weights(o->export_to, path, sizeof path) && hd_state_export(x, path, o->export_dtype, averaged) &&
           (!rank_0 || hd_hub_write(x->program, o->export_to, o->init, names[o->export_dtype]));
}
