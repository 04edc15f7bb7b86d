// Hashes that checkpoints and ranks of a run are compared by: those of the plan and of the model, and the train block.
#include "codegen/emit.h"
#include "ir/layout.h"

const char *hd_emit_plan_hash(Emit *e) {
    Out text = hd_out(e->a);
    hd_print_module(e->m, &text);
    return hd_hash(e->a, text.text, text.n);
}

// A checkpoint must match the model's computation, its parameters and the numbers of the train block; not the schedule,
// and no name or line of the source. The number of micro-batches in a step is left out: a run with fewer ranks
// continues with more of them. So is the scale of the loss, of which another mesh has another, and of which a run may
// need a smaller one. So is the default order of sums, which older checkpoints do not name.
const char *hd_emit_train(Emit *e) {
    Out text = hd_out(e->a);
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (s->kind == SYM_CONFIG && !strcmp(s->name, "train")) {
            Attrs train = hd_attrs_copy(e->cx, &s->attrs);
            hd_unset(&train, A_MICRO);
            hd_unset(&train, A_LOSS_SCALE);
            if (!strcmp(hd_word(&train, A_REDUCTION, "each"), "each")) hd_unset(&train, A_REDUCTION);
            hd_print_attrs(&train, &text);
        }
    return text.n ? text.text : "";
}

// The parameters and what is computed. `train`: with the numbers of the train block; else neither they, nor the batch
// or the precision count, so that a run may go on under others.
static const char *hash_of(Emit *e, bool train) {
    Out text = hd_out(e->a);
    const char *fingerprint = "";
    const Mesh mesh = hd_mesh(e->m);
    for (const Symbol *s = e->m->symbols; s; s = s->next) {
        if (s->kind == SYM_PARAM) {
            hd_printf(&text, "%s %s %s", s->name,
                      hd_type_text(e->cx, hd_type_whole(e->cx, s->type, s->layout, &mesh)),
                      hd_word(&s->attrs, A_INIT, ""));
            hd_put_float(&text, hd_float(&s->attrs, A_STD, 0));
            hd_printf(&text, " %d\n", hd_has(&s->attrs, A_DECAY));
        } else if (s->kind == SYM_CONFIG && !strcmp(s->name, "train")) {
            hd_puts(&text, train ? hd_emit_train(e) : "");
        } else if (s->kind == SYM_CONFIG && !strcmp(s->name, "model")) {
            fingerprint = hd_word(&s->attrs, A_FINGERPRINT, "");
            const bool edited = !strncmp(fingerprint, "edited", 6);
            hd_puts(&text, train || edited ? fingerprint : hd_word(&s->attrs, A_IDENTITY, ""));
        }
    }
    return hd_sprintf(e->a, "%s%s", strncmp(fingerprint, "edited", 6) ? "" : "edited-",
                      hd_hash(e->a, text.text, text.n));
}

const char *hd_emit_model_hash(Emit *e) { return hash_of(e, true); }

const char *hd_emit_model_core(Emit *e) { return hash_of(e, false); }
