// See words.h. One row says what to write for several names.
#include "runtime/run/words.h"
#include <stdbool.h>
#include <string.h>

typedef struct { const char *names, *ours; } Word; // names: with dashes, and a space between them

#define SET(what) "it is a setting of the program: compile it with heddlec --set " what
static const Word options[] = {
    {"batch batch-size micro-batch-size local-batch-size per-device-train-batch-size", SET("train.batch=N")},
    {"lr learning-rate", SET("train.optimizer.lr=RATE")},
    {"warmup warmup-steps warmup-iters", SET("train.optimizer.lr.warmup=N")},
    {"weight-decay", SET("train.optimizer.weight_decay=SHARE")},
    {"grad-clip clip max-grad-norm", SET("train.clip=NORM")},
    {"accumulate gradient-accumulation-steps grad-accum", SET("train.accumulate=N")},
    {"dtype precision bf16 fp16 mixed-precision amp", SET("train.precision.compute=bf16")},
    {"optimizer optim", SET("train.optimizer=NAME")},
    {"set config", "settings are the program's: heddlec FILE.hd --set NAME=VALUE compiles one with others"},
    {"device gpu cuda cpu", "a program is for one target: heddlec --target=cuda compiles it for GPUs"},
    {"compile", "every program is compiled"},
    {"max-steps max-iters num-steps num-iters iterations train-iters", "it is called --steps=N"},
    {"epochs num-epochs num-train-epochs", "--steps=N counts steps; the first line of a run says how many tokens or "
                                           "rows a step reads"},
    {"output-dir out-dir save-dir checkpoint-dir ckpt-dir", "it is called --save=DIR"},
    {"checkpoint ckpt", "--save=DIR writes checkpoints, --resume=DIR goes on from one"},
    {"load resume-from resume-from-checkpoint", "it is called --resume=DIR"},
    {"pretrained model model-name-or-path init-from weights-file", "it is called --init=FILE"},
    {"gpus num-gpus nproc-per-node world-size nproc", "it is called --ranks=N, as many as heddlec --set "
                                                     "schedule.mesh.shard=N compiles for"},
    {"prompt text", "it is called --sample=TEXT"},
    {"max-tokens max-new-tokens num-tokens length", "it is called --tokens=N"},
    {"dataset train-data data-path data-dir train-file train-bin", "it is called --data=FILE"},
    {"val-data eval-data valid-data validation-file", "it is called --val=FILE"},
    {"eval-interval eval-every eval-steps val-interval", "it is called --val-every=N"},
    {"eval-iters val-steps eval-batches", "it is called --val-batches=N"},
    {"log-interval logging-steps", "it is called --log-every=N"},
    {"save-interval save-steps checkpoint-every", "it is called --save-every=N"},
    {"save-total-limit keep-last keep-latest-k", "it is called --keep=N"},
    {"wandb report-to", "--log=FILE writes a line of JSON a step, --tensorboard=DIR event files"},
    {"workers num-workers", "a program reads its data itself, without workers"},
    {"verbose quiet", "HEDDLE_VERBOSE=1 prints more; --log-every=N says how often a step is printed"},
};
static const Word settings[] = {
    {"learning-rate lr-max max-lr", "lr.peak"}, {"min-lr lr-min", "lr.floor"},
    {"warmup warmup-steps", "lr.warmup"},       {"total max-steps lr-decay-iters", "lr.total"},
    {"batch-size micro-batch-size", "batch"},   {"grad-clip max-grad-norm", "clip"},
    {"wd", "weight_decay"},                     {"optim", "optimizer"},
    {"dtype", "precision.compute"},
};
static const Word formats[] = {
    {"text txt utf8 utf-8 ascii byte", "bytes"}, {"uint8", "u8"},    {"uint16 ushort", "u16"}, {"uint32", "u32"},
    {"int16", "i16"},   {"int32 int", "i32"},    {"int64 long", "i64"}, {"float32 float fp32", "f32"},
    {"float16 half fp16", "f16"},                {"bfloat16", "bf16"},
};

static char as_written(char c) { return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool among(const char *names, const char *name, size_t n) {
    for (const char *at = names; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t k = 0;
        while (k < n && at[k] == as_written(name[k])) k++;
        if (k == n && (at[k] == ' ' || !at[k])) return true;
    }
    return false;
}

#define FIND(words, name, n)                                                                                           \
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)                                                          \
        if (among(words[i].names, name, n)) return words[i].ours;                                                      \
    return NULL

const char *hd_word_option(const char *given) {
    if (strncmp(given, "--", 2)) return NULL;
    FIND(options, given + 2, strcspn(given + 2, "="));
}

const char *hd_word_setting(const char *name, size_t n) { FIND(settings, name, n); }
const char *hd_word_format(const char *name) { FIND(formats, name, strlen(name)); }
