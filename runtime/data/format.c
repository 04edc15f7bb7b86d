// The table of data formats, and what their readers share.
#include "runtime/data/format.h"
#include "runtime/heddle.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

const DataTypeInfo hd_data_types[DATA_KINDS] = {
    [DATA_BY_FILE] = {.name = "by file", .width = 1},
    [DATA_BYTES] = {.name = "bytes", .width = 1},
    [DATA_U16] = {.name = "u16", .width = 2},
    [DATA_U32] = {.name = "u32", .width = 4},
    [DATA_I32] = {.name = "i32", .width = 4, .is_signed = true},
    [DATA_I64] = {.name = "i64", .width = 8, .is_signed = true},
    [DATA_U8] = {.name = "u8", .width = 1},
    [DATA_I16] = {.name = "i16", .width = 2, .is_signed = true},
    [DATA_F16] = {.name = "f16", .width = 2, .floats = true, .as = HD_F16},
    [DATA_BF16] = {.name = "bf16", .width = 2, .floats = true, .as = HD_BF16},
    [DATA_F32] = {.name = "f32", .width = 4, .floats = true, .as = HD_F32},
};

DataType hd_data_type(const char *name) {
    for (int i = DATA_BYTES; i < DATA_KINDS; i++)
        if (!strcmp(name, hd_data_types[i].name)) return (DataType)i;
    return DATA_BY_FILE;
}

#define UNPACK "decompress it first: "
#define TO_BIN "write its tokens as a .npy file or as raw u16 or u32 to a .bin file"
#define MAKES " -o FOLDER makes tokens of its texts (--tokenizer=tokenizer.json)"
#define PICTURE "decode pictures in Python and save their numbers: np.save('image.npy', array)"

#define SOUND "decode it in Python and save its numbers: np.save('sound.npy', array)"
#define LLMC "name llm.c's files of tokens, such as tiny_shakespeare_train.bin"
#define UTF8 "write it in UTF-8 first: iconv -f UTF-16 -t UTF-8 FILE > NEW.txt"

// ALWAYS: no file of raw tokens or text begins so. UNLESS_ASKED: one might, if --format says so. TEXT: as UNLESS_ASKED,
// of a file that begins like text and is not called .txt. WIDE: as UNLESS_ASKED, of a file that is not called .bin,
// which may have any two bytes.
typedef enum { ALWAYS, UNLESS_ASKED, TEXT, WIDE } When;
static const struct {
    const char *magic;
    int at, bytes; // of the magic
    When when;
    const char *name;
    HdDataReader *read;
    const char *way; // to convert it, where there is no reader
} formats[] = {
    {"\x88\xd8\x34\x01", 0, 4, ALWAYS, "tokens with a header", hd_read_llmc, NULL}, // llm.c's GPT-2, u16
    {"\xa1\xd9\x34\x01", 0, 4, ALWAYS, "tokens with a header", hd_read_llmc, NULL}, // llm.c's Llama 3, u32
    {"\x93NUMPY", 0, 6, ALWAYS, "a numpy array", hd_read_numpy, NULL},
    {"MMIDIDX\0", 0, 8, ALWAYS, "the index of a Megatron data set", NULL, "name the .bin file beside it"},
    {"TNTIDX\0", 0, 7, ALWAYS, "the index of an old Megatron data set", NULL,
     "write the data set again with today's Megatron"},
    {"PK\3\4", 0, 4, UNLESS_ASKED, "a zip archive, such as numpy's .npz and PyTorch's .pt", NULL,
     "save the array of tokens alone: np.save('tokens.npy', array)"},
    {"\x1f\x8b\x08", 0, 3, UNLESS_ASKED, "compressed by gzip", NULL, UNPACK "gunzip FILE"},
    {"\x28\xb5\x2f\xfd", 0, 4, UNLESS_ASKED, "compressed by zstd", NULL, UNPACK "zstd -d FILE"},
    {"\xfd" "7zXZ\0", 0, 6, UNLESS_ASKED, "compressed by xz", NULL, UNPACK "unxz FILE"},
    {"BZh", 0, 3, UNLESS_ASKED, "compressed by bzip2", NULL, UNPACK "bunzip2 FILE"},
    {"PAR1", 0, 4, UNLESS_ASKED, "a parquet table", NULL,
     "heddle-data FILE.parquet" MAKES},
    {"ARROW1\0\0", 0, 8, UNLESS_ASKED, "an Arrow table", NULL,
     "read its column in Python (pyarrow.feather.read_table), tokenize it, and " TO_BIN},
    {"\x89HDF\r\n\x1a\n", 0, 8, UNLESS_ASKED, "an HDF5 file", NULL,
     "read its data set in Python (h5py.File) and save it with np.save('tokens.npy', array)"},
    {"\x80\4\x95", 0, 3, UNLESS_ASKED, "a Python pickle", NULL, "load it in Python and " TO_BIN},
    {"\0\0\0\0{\"", 4, 6, ALWAYS, "a safetensors file", hd_read_safetensors, NULL},
    {"SQLite format 3", 0, 16, UNLESS_ASKED, "an SQLite database", NULL, "export its text to a .txt file"},
    {"%PDF-", 0, 5, UNLESS_ASKED, "a PDF document", NULL, "extract its text to a .txt file (pdftotext)"},
    {"\x89PNG\r\n\x1a\n", 0, 8, UNLESS_ASKED, "a picture (PNG)", NULL, PICTURE},
    {"\xff\xd8\xff", 0, 3, UNLESS_ASKED, "a picture (JPEG)", NULL, PICTURE},
    {"GIF8", 0, 4, UNLESS_ASKED, "a picture (GIF)", NULL, PICTURE},
    {"II*\0", 0, 4, UNLESS_ASKED, "a picture (TIFF)", NULL, PICTURE},
    {"WEBP", 8, 4, UNLESS_ASKED, "a picture (WebP)", NULL, PICTURE},
    {"\xc6\xd7\x34\x01", 0, 4, UNLESS_ASKED, "a model of llm.c", NULL, LLMC},
    {"\xc8\xd7\x34\x01", 0, 4, UNLESS_ASKED, "a tokenizer of llm.c", NULL, LLMC},
    {"\x8a\xd8\x34\x01", 0, 4, UNLESS_ASKED, "an evaluation of llm.c (HellaSwag)", NULL, LLMC},
    {"\x8f\xd8\x34\x01", 0, 4, UNLESS_ASKED, "a training state of llm.c", NULL, LLMC},
    {"GGUF", 0, 4, UNLESS_ASKED, "a model of llama.cpp (GGUF)", NULL, "a file of tokens or text is expected"},
    {"ustar", 257, 5, UNLESS_ASKED, "a tar archive", NULL, "unpack it first: tar -xf FILE"},
    {"WAVE", 8, 4, UNLESS_ASKED, "a sound (WAVE)", NULL, SOUND},
    {"fLaC", 0, 4, UNLESS_ASKED, "a sound (FLAC)", NULL, SOUND},
    {"OggS", 0, 4, UNLESS_ASKED, "a sound (Ogg)", NULL, SOUND},
    {"\x7f" "ELF", 0, 4, UNLESS_ASKED, "a program", NULL, "--format=bytes trains on its bytes"},
    {"\xff\xfe", 0, 2, WIDE, "text in UTF-16", NULL, UTF8},
    {"\xfe\xff", 0, 2, WIDE, "text in UTF-16", NULL, UTF8},
    {"{\"", 0, 2, TEXT, "JSON or JSON lines", NULL,
     "heddle-data FILE.jsonl" MAKES "; --format=bytes trains on the JSON itself"},
};
enum { FORMATS = sizeof formats / sizeof *formats };

bool hd_format_ends(const char *path, const char *end) {
    const size_t n = strlen(path), k = strlen(end);
    return n >= k && !strcmp(path + n - k, end);
}

uint64_t hd_format_word(const unsigned char *p, int width) {
    uint64_t v = 0;
    for (int i = 0; i < width; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

int64_t hd_format_bytes(int fd, void *to, int64_t bytes, int64_t at) {
    int64_t done = 0;
    while (done < bytes) {
        const ssize_t got = pread(fd, (char *)to + done, (size_t)(bytes - done), (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (!got) break;
        done += got;
    }
    return done;
}

bool hd_format_text(const DataSource *s) {
    int64_t ascii = 0;
    for (int64_t i = 0; i < s->read; i++) {
        const unsigned char c = s->head[i];
        if ((c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f') || c == 127) return false;
        ascii += c < 128;
    }
    return s->read >= 16 && ascii * 2 > s->read;
}

bool hd_format_agrees(const DataSource *s, DataType type, const char *what) {
    const DataTypeInfo *asked = &hd_data_types[s->asked], *is = &hd_data_types[type];
    return !s->asked || (asked->width == is->width && asked->floats == is->floats) ||
           hd_fail("%s: its %s says %s tokens, --format=%s another kind; leave --format out, or say for which argument "
                   "it is: --format=NAME=%s",
                   s->path, what, is->name, asked->name, asked->name);
}

static bool begins(const DataSource *s, int i) {
    const int end = formats[i].at + formats[i].bytes;
    if (s->read < end || memcmp(s->head + formats[i].at, formats[i].magic, (size_t)formats[i].bytes)) return false;
    if (formats[i].when == ALWAYS) return true;
    if (s->asked || (formats[i].when == WIDE && hd_format_ends(s->path, ".bin"))) return false;
    return formats[i].when != TEXT || (hd_format_text(s) && !hd_format_ends(s->path, ".txt"));
}

bool hd_format_layout(const DataSource *s, DataLayout *t) {
    bool ok;
    if (hd_read_megatron(s, t, &ok)) return ok;
    for (int i = 0; i < FORMATS; i++) {
        if (!begins(s, i)) continue;
        if (formats[i].read) return formats[i].read(s, t);
        return hd_fail("%s is %s, not a file of tokens or text; %s", s->path, formats[i].name, formats[i].way);
    }
    return hd_read_raw(s, t);
}
