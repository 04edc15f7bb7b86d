// `fn huggingface()` of a model returns what config.json of Hugging Face says of it: pairs of a key and a value, such
// as ["n_layer", layers]. A value is a number, text, a list, or a list of such pairs, which is an object; the texts
// "true", "false" and "null" stand for these. The program gets it as JSON, in config @model.
#include "frontend/model/sema.h"
#include <math.h>

static const char FORM[] = "'huggingface' returns pairs of a key and a value, such as [\"n_layer\", layers], "
                           "[\"rope_theta\", theta]";

static bool is_pair(Val v) { return v.kind == VAL_LIST && v.n == 2 && v.list[0].kind == VAL_TEXT; }

static bool is_object(Val v) {
    for (int k = 0; v.kind == VAL_LIST && k < v.n; k++)
        if (!is_pair(v.list[k])) return false;
    return v.kind == VAL_LIST && v.n;
}

static bool is_literal(const char *text) {
    return !strcmp(text, "true") || !strcmp(text, "false") || !strcmp(text, "null");
}

static bool put_value(Out *o, Val v) { // false: no value of JSON
    if (v.kind == VAL_INT) hd_put_int(o, v.i);
    else if (v.kind == VAL_FLOAT && isfinite(v.f)) hd_put_float(o, v.f);
    else if (v.kind == VAL_TEXT) hd_put_json(o, is_literal(v.text) ? "%s" : "\"%s\"", v.text);
    else if (v.kind != VAL_LIST) return false;
    if (v.kind != VAL_LIST) return true;
    const bool object = is_object(v);
    hd_puts(o, object ? "{" : "[");
    for (int k = 0; k < v.n; k++) {
        if (k) hd_puts(o, ", ");
        if (object) hd_put_json(o, "\"%s\": ", v.list[k].list[0].text);
        if (!put_value(o, object ? v.list[k].list[1] : v.list[k])) return false;
    }
    hd_puts(o, object ? "}" : "]");
    return true;
}

static bool no_key_twice(Front *f, const Node *fn, Val v) {
    for (int k = 0; k < v.n; k++)
        for (int j = 0; j < k; j++)
            if (v.list[j].list[0].text == v.list[k].list[0].text)
                return hd_front_error(f, fn->span, "'huggingface' returns the key \"%s\" twice",
                                      v.list[k].list[0].text);
    return true;
}

void hd_hub_emit(Front *f) {
    const Node *fn;
    const Op *last = f->func->last;
    Val v;
    if (!hd_lower_constant(f, "huggingface", &fn, &v)) return;
    if (is_pair(v)) v = (Val){.kind = VAL_LIST, .n = 1, .list = &(const Val[]){v}[0]};
    Out o = hd_out(f->arena);
    if (f->func->last != last || !is_object(v) || !put_value(&o, v)) {
        hd_front_error(f, fn->span, "%s", FORM);
        return;
    }
    if (no_key_twice(f, fn, v)) hd_set_word(f->cx, &hd_config(f->module, "model")->attrs, A_HUB_CONFIG, o.text);
}
