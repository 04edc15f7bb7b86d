// A device table as it was read, for device_model.c and device_read.c.
#ifndef IR_MACHINE_DEVICE_TABLE_H
#define IR_MACHINE_DEVICE_TABLE_H
#include "ir/machine/device_model.h"

typedef enum {
#define FACT(id, ...) FACT_##id,
#include "ir/machine/device.def"
#undef FACT
    N_FACTS
} FactId;
typedef enum { VALUE_TEXT, VALUE_NUMBER, VALUE_RISING, VALUE_RATES } FactValues;
enum { FACT_WORDS = 3 };

typedef struct { double at, is; } Point;
typedef struct {
    FactId fact;
    Span span;
    const char *word[FACT_WORDS];
    double number; // before the values; 0: none
    const char *text;
    double value;
    int n;         // of a curve, ascending
    const Point *points;
} FactLine;
struct DeviceModel {
    int n;
    const FactLine *lines; // of one fact together; of equal words ascending by number
    int first[N_FACTS + 1]; // of a fact
    double peak[N_DTYPES];  // the largest rate of its products, in operations a microsecond
};

const char *hd_fact_keyword(FactId f);
double hd_curve(const FactLine *l, double at, bool clamp); // clamp: constant after the last point, else proportional
#endif
