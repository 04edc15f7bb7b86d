// The man page of compiled programs as such: heddle-program(1), which the installation has.
#include "runtime/run/options.h"

int main(void) {
    hd_man_page(stdout, "heddle-program");
    return ferror(stdout) != 0;
}
