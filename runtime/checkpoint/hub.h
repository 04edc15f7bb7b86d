// A model as Hugging Face keeps it: a folder with config.json, tokenizer files and weights. The facts that a program
// knows of config.json is HdProgram.hub_config, which the model gives (`fn huggingface()`).
#ifndef RUNTIME_CHECKPOINT_HUB_H
#define RUNTIME_CHECKPOINT_HUB_H
#include "runtime/heddle.h"

// Notes, one a difference, where the config.json beside the weights of --init says something else than this program.
// false after hd_fail: it cannot be read.
bool hd_hub_compare(const HdProgram *p, const char *init);
// --export=DIR --as=hf: makes the folder and checks that it can be written; before the first step.
bool hd_hub_prepare(const HdProgram *p, const char *dir, const char *init);
// config.json, with the type of the weights; and the tokenizer's files of the folder of --init (NULL: none)
bool hd_hub_write(const HdProgram *p, const char *dir, const char *init, const char *dtype);
bool hd_hub_weights(const char *dir, char *path, size_t size); // DIR/model.safetensors; false after hd_fail: too long
#endif
