// "did you mean": the nearest name by edit distance (insert, delete, replace, swap neighbours: optimal string
// alignment), where capitals and small letters are alike. At most about a third of the word may differ. Words that
// people know from other languages have a row, where a value or a function may stand.
#include "frontend/model/sema.h"
#include <ctype.h>

enum { LONGEST = 64 };

static int min3(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

static bool alike(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    int row[3][LONGEST + 1];
    int *before = row[0], *last = row[1], *now = row[2];
    for (int j = 0; j <= m; j++) last[j] = j;
    for (int i = 1; i <= n; i++) {
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + !alike(a[i - 1], b[j - 1]));
            bool swapped = i > 1 && j > 1 && alike(a[i - 1], b[j - 2]) && alike(a[i - 2], b[j - 1]);
            if (swapped && before[j - 2] + 1 < now[j]) now[j] = before[j - 2] + 1;
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[m];
}

static const struct { const char *word, *hint; } known_words[] = {
    {"True", "write true"},
    {"False", "write false"},
    {"None", "leave the argument out"},
    {"self", "members are called by their names alone"},
    {"F", "functions are called by their names alone"},
    {"nn", "modules and functions are called by their names alone"},
    {"torch", "functions are called by their names alone"},
    {"swish", "it is called 'silu'"},
    {"topk", "it is called 'top_k'"},
    {"relu2", "write square(relu(x))"},
    {"leaky_relu", "write max(x, 0.01 * x)"},
    {"clamp", "write max(min(x, high), low)"},
    {"clip", "write max(min(x, high), low)"},
    {"scaled_dot_product_attention", "it is called 'attention'"},
    {"view", "it is called 'reshape'"},
    {"flatten", "write reshape(x, [sizes])"},
    {"squeeze", "write reshape(x, [sizes])"},
    {"unsqueeze", "write reshape(x, [sizes])"},
    {"rearrange", "write transpose(reshape(x, [sizes]), [axes])"},
    {"permute", "it is called 'transpose'"},
    {"T", "write transpose(x)"},
    {"expand", "it is called 'broadcast'"},
    {"cat", "it is called 'concat'"},
    {"chunk", "it is called 'split'"},
    {"arange", "it is called 'iota'"},
    {"bmm", "it is called 'matmul'"},
    {"mm", "it is called 'matmul'"},
    {"einsum", "write matmul, with transpose and reshape around it"},
    {"masked_fill", "write where(condition, x, value)"},
    {"gather", "it is called 'take', by rows"},
    {"index_select", "it is called 'take'"},
    {"full", "it is called 'fill'"},
    {"zeros_like", "write fill(0, [sizes])"},
    {"ones_like", "write fill(1, [sizes])"},
    {"amax", "it is called 'reduce_max'"},
    {"shape", "write size(x, axis)"},
    {"to", "write float(x); the type of the computation is train.precision.compute"},
    {"ModuleList", "write name = repeat(n) Module(...)"},
    {"Sequential", "write name = repeat(n) Module(...)"},
    {"Dropout", "call dropout(x, p) in a function"},
    {"MultiheadAttention", "call attention(q, k, v, heads) in a function"},
    {"Conv1d", "call conv1d(x, taps) in a function"},
    {"Conv2d", "multiply patches: docs/limits.md has the text"},
    {"BatchNorm", "LayerNorm and RMSNorm are norms of a row alone; there is none over a batch"},
    {"BatchNorm1d", "LayerNorm and RMSNorm are norms of a row alone; there is none over a batch"},
    {"BatchNorm2d", "LayerNorm and RMSNorm are norms of a row alone; there is none over a batch"},
    {"LSTM", "there is no recurrence; ssd(...) is a state-space layer"},
    {"GRU", "there is no recurrence; ssd(...) is a state-space layer"},
    {"GELU", "call gelu(x) in a function"},
    {"ReLU", "call relu(x) in a function"},
    {"SiLU", "call silu(x) in a function"},
    {"Tanh", "call tanh(x) in a function"},
    {"Sigmoid", "call sigmoid(x) in a function"},
    {"Softmax", "call softmax(x) in a function"},
    {"Parameter", "write param name: [sizes] = normal(0.02)"},
    {"zeros", "write fill(0, [sizes])"},
    {"ones", "write fill(1, [sizes])"},
    {"detach", "it is called 'stop_gradient'"},
    {"log_softmax", "write x - logsumexp(x, keep = true)"},
    {"softplus", "write log(1 + exp(x))"},
    {"log1p", "write log(1 + x)"},
    {"mse_loss", "write mean(square(a - b))"},
    {"norm", "write sqrt(sum(square(x)))"},
    {"var", "write mean(square(x - mean(x)))"},
    {"std", "write sqrt(mean(square(x - mean(x))))"},
    {"argmax", "the second result of top_k(x, 1)"},
    {"stack", "write concat, of reshape(x, [sizes])"},
    {"len", "write size(x)"},
    {"length", "write size(x)"},
    {"print", "a result of the loss is logged: 'return loss, name = value;'"},
    {"tril", "write causal = true of attention or softmax"},
    {"triu", "write causal = true of attention or softmax"},
    {"logical_and", "write mul(a, b), of tensors of 0 and 1"},
    {"logical_or", "write max(a, b), of tensors of 0 and 1"},
    {"logical_not", "write sub(1, a), of a tensor of 0 and 1"},
    {"math", "functions are called by their names alone"},
    {"np", "functions are called by their names alone"},
    {"mamba_chunk_scan_combined", "it is called 'ssd'"},
    {"mamba_chunk_scan", "it is called 'ssd'"},
    {"ssm_scan", "it is called 'ssd'"},
    {"ssm", "it is called 'ssd'"},
    {"selective_scan", "ssd(x, dt, a, b, c, d) is the scan of Mamba-2, with one rate a for each head"},
    {"selective_scan_fn", "ssd(x, dt, a, b, c, d) is the scan of Mamba-2, with one rate a for each head"},
    {"associative_scan", "cumsum and ssd are the scans that there are"},
    {"causal_conv1d", "it is called 'conv1d'"},
    {"causal_conv1d_fn", "it is called 'conv1d'"},
    {"Mamba", "write it with conv1d and ssd in a function: the reference of the language has the text"},
    {"Mamba2", "write it with conv1d and ssd in a function: the reference of the language has the text"},
    {"RMSNormGated", "write norm(y * silu(z)), with norm = RMSNorm(dim)"},
    {"MoE", "write it with top_k, dispatch, grouped and combine: the reference of the language has the text"},
    {"TransformerEncoderLayer", "declare a module with attention and linear layers"},
    {"segsum", "ssd(...) has the sums of segments in it"},
};

// Arguments by PyTorch's names, with ours of the functions that have one of that name.
static const struct { const char *word, *ours; } known_arguments[] = {
    {"dim", "axis"},          {"dim", "axes"},           {"keepdim", "keep"},         {"keepdims", "keep"},
    {"ignore_index", "ignore"}, {"weight", "weights"},   {"is_causal", "causal"},     {"num_heads", "heads"},
    {"dropout_p", "dropout"}, {"in_features", "in"},     {"out_features", "out"},     {"num_embeddings", "n"},
    {"embedding_dim", "dim"}, {"num_classes", "n"},      {"normalized_shape", "dim"}, {"dims", "perm"},
    {"chunk_size", "chunk"},  {"seq_idx", "documents"},  {"weight", "taps"},          {"kernel", "taps"},
    {"n_heads", "heads"},     {"num_kv_heads", "kv_heads"}, {"n_kv_heads", "kv_heads"}, {"base", "theta"},
    {"min_lr", "floor"},      {"eta_min", "floor"},      {"warmup_steps", "warmup"},  {"warmup_iters", "warmup"},
    {"total_steps", "total"}, {"max_steps", "total"},    {"T_max", "total"},          {"lr", "peak"},
};

// Arguments that other programs have and a function with an argument `beside` has in another form.
static const struct { const char *word, *beside, *hint; } other_arguments[] = {
    {"dt_bias", "dt", "add it to dt"},
    {"dt_softplus", "dt", "dt is what the states decay by: write softplus(dt) yourself, as log(1 + exp(x))"},
    {"dt_limit", "dt", "write max(min(dt, high), low)"},
    {"z", "dt", "write y * silu(z), of the result"},
    {"initial_states", "dt", "the state begins at 0"},
    {"return_final_states", "dt", "the last state is no result"},
    {"activation", "silu", "write silu = true, or call another function on the result"},
    {"kernel_size", "taps", "taps is [k, dim]"},
    {"padding", "taps", "there are zeros before the first position, and nothing behind the last"},
    {"stride", "taps", "there is a result for each position"},
    {"groups", "taps", "each column has taps of its own"},
    {"attn_mask", "causal", "there are causal, window and documents; another mask is written out with softmax"},
    {"mask", "causal", "there are causal, window and documents; another mask is written out with softmax"},
    {"alibi_slopes", "causal", "write attention out: a bias that is added before softmax"},
    {"capacity_factor", "experts", "capacity counts rows of an expert: factor * batch * seq * k / experts"},
    {"label_smoothing", "ignore", "add p * (logsumexp(x) - mean(x, -1)) and take (1 - p) of the loss"},
    {"reduction", "ignore", "the result is a mean over the rows that count"},
};

// Settings by the names that other programs have for them.
static const struct { const char *word, *ours; } known_settings[] = {
    {"capacity_factor", "'capacity' of dispatch in the model, the rows of an expert: factor * tokens * k / experts"},
    {"batch_size", "train.batch"}, {"local_batch_size", "train.batch"}, {"micro_batch_size", "train.batch"},
    {"per_device_train_batch_size", "train.batch"}, {"gradient_accumulation_steps", "train.accumulate"},
    {"grad_accum", "train.accumulate"}, {"learning_rate", "train.optimizer.lr"}, {"grad_clip", "train.clip"},
    {"precision", "train.precision.compute"},
    {"max_norm", "train.clip"}, {"max_grad_norm", "train.clip"}, {"dtype", "train.precision.compute"},
    {"bf16", "train.precision.compute"}, {"gradient_checkpointing", "schedule.recompute"},
    {"activation_checkpoint", "schedule.recompute"}, {"data_parallel_shard_degree", "schedule.mesh.shard"},
    {"tensor_parallel_degree", "schedule.mesh.tensor"}, {"dp", "schedule.mesh.shard"}, {"tp", "schedule.mesh.tensor"},
    {"ep", "schedule.mesh.expert"}, {"expert_parallel_degree", "schedule.mesh.expert"},
    {"expert_model_parallel_size", "schedule.mesh.expert"}, {"epochs", "--steps of the program"},
    {"max_steps", "--steps of the program"}, {"max_iters", "--steps of the program"},
    {"steps", "--steps of the program"}, {"warmup_steps", "warmup of train.optimizer.lr"},
    {"warmup_iters", "warmup of train.optimizer.lr"}, {"ema_decay", "train.optimizer.ema"},
    {"beta1", "train.optimizer.betas"}, {"beta2", "train.optimizer.betas"}, {"gpus", "schedule.mesh.shard"},
    {"ranks", "schedule.mesh.shard"}, {"amp", "train.precision.compute"}, {"zero_stage", "schedule.fsdp"},
    {"activation_checkpointing", "schedule.recompute"}, {"checkpointing", "schedule.recompute"},
    {"cpu_offload", "schedule.offload"}, {"cuda_graphs", "schedule.graph"}, {"min_lr", "floor of train.optimizer.lr"},
};

const char *hd_suggest_setting(Front *f, const char *path) {
    const char *dot = strrchr(path, '.'), *word = dot ? dot + 1 : path;
    for (size_t k = 0; k < sizeof known_settings / sizeof *known_settings; k++)
        if (!strcmp(word, known_settings[k].word))
            return hd_sprintf(f->arena, "; it is called %s", known_settings[k].ours);
    return NULL;
}

// Values of settings, likewise.
static const struct { const char *word, *ours; } known_choices[] = {
    {"fp16", "f16"}, {"float16", "f16"}, {"half", "f16"}, {"bfloat16", "bf16"}, {"fp32", "f32"}, {"float32", "f32"},
    {"float", "f32"}, {"ddp", "none"}, {"dp", "none"}, {"full_shard", "zero3"}, {"fsdp", "zero3"}, {"fsdp2", "zero3"},
    {"shard_grad_op", "zero2"}, {"no_shard", "none"}, {"AdamW", "adamw"}, {"Adam", "adam"}, {"SGD", "sgd"},
    {"Lion", "lion"}, {"True", "on"}, {"true", "on"}, {"False", "off"}, {"false", "off"}, {"full", "all"},
    {"off", "none"}, {"false", "none"}, {"False", "none"}, {"no", "none"}, {"0", "none"}, {"stage3", "zero3"},
    {"stage2", "zero2"}, {"stage1", "zero1"}, {"3", "zero3"}, {"hybrid_shard", "zero3"},
};

bool hd_in_words(const char *word, const char *words) {
    size_t n = strlen(word);
    for (const char *s = words; *s; s += strcspn(s, " "), s += *s == ' ')
        if (!strncmp(s, word, n) && (s[n] == ' ' || !s[n])) return true;
    return false;
}

const char *hd_suggest_choice(const char *word, const char *choices) {
    for (size_t k = 0; k < sizeof known_choices / sizeof *known_choices; k++)
        if (!strcmp(word, known_choices[k].word) && hd_in_words(known_choices[k].ours, choices))
            return known_choices[k].ours;
    return NULL;
}

static const char *known(const char *wrong) { // NULL: no such word
    for (size_t k = 0; k < sizeof known_words / sizeof *known_words; k++)
        if (!strcmp(wrong, known_words[k].word)) return known_words[k].hint;
    return NULL;
}

// the text after the last dot decides how much may differ: the groups of a setting are mostly right
static int most_edits(const char *wrong) {
    const char *dot = strrchr(wrong, '.');
    const size_t len = strlen(dot ? dot + 1 : wrong);
    return len < 6 ? 1 : len < 9 ? 2 : 3;
}

const char *hd_suggest(Front *f, const char *wrong, const Names *names) {
    const char *best = NULL;
    int nearest = most_edits(wrong) + 1;
    for (int i = 0; i < names->n; i++) {
        int d = distance(wrong, names->at[i]);
        if (d < nearest) {
            nearest = d;
            best = names->at[i];
        }
    }
    return best ? hd_sprintf(f->arena, "; did you mean '%s'?", best) : "";
}

const char *hd_suggest_value(Front *f, const char *wrong, const Names *names) {
    const char *hint = known(wrong);
    return hint ? hd_sprintf(f->arena, "; %s", hint) : hd_suggest(f, wrong, names);
}

const char *hd_suggest_argument(Front *f, const char *wrong, const Names *names) {
    for (size_t k = 0; k < sizeof known_arguments / sizeof *known_arguments; k++)
        for (int i = 0; i < names->n && !strcmp(wrong, known_arguments[k].word); i++)
            if (!strcmp(names->at[i], known_arguments[k].ours))
                return hd_sprintf(f->arena, "; it is called '%s'", names->at[i]);
    for (size_t k = 0; k < sizeof other_arguments / sizeof *other_arguments; k++)
        for (int i = 0; i < names->n && !strcmp(wrong, other_arguments[k].word); i++)
            if (!strcmp(names->at[i], other_arguments[k].beside))
                return hd_sprintf(f->arena, "; %s", other_arguments[k].hint);
    return hd_suggest(f, wrong, names);
}

const char *hd_suggest_method(Front *f, const char *name) {
    const char *hint = known(name);
    if (hd_builtin_exists(name)) return hd_sprintf(f->arena, "; write %s(x, ...)", name);
    return hint ? hd_sprintf(f->arena, "; %s", hint) : "";
}

const char *hd_list_names(Front *f, const Names *names) {
    enum { MOST = 100 };
    Out o = hd_out(f->arena);
    for (int i = 0; i < names->n && i < MOST; i++) hd_printf(&o, "%s%s", i ? ", " : "", names->at[i]);
    if (names->n > MOST) hd_printf(&o, " and %d more", names->n - MOST);
    return names->n ? o.text : "nothing";
}

const char *hd_order_hint(Front *f, const char *fn, int n, const Formal *formals) {
    Out o = hd_out(f->arena);
    hd_printf(&o, "; the order of arguments is %s(", fn);
    for (int i = 0; i < n; i++) hd_printf(&o, "%s%s", i ? ", " : "", formals[i].name);
    hd_puts(&o, ")");
    return o.text;
}
