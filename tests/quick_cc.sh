#!/bin/sh
# A C compiler for the programs of tests that are about what is around generated code: tests/quick_cc.sh ARGUMENTS of
# cc. The text on standard input is compiled by tcc, which takes a tenth of the time of cc -O0, and linked by cc. The
# bits are those of -O3, as `rule` proves, whose programs have both. tcc knows neither OpenMP, so that loops run on one
# thread, nor sanitizers: text that they shall check is cc's, as that of shared libraries is and all where there is no
# tcc. With -fno-sanitize=undefined they need not check it.
here= text=
for a; do
  case $a in
    -) text=1 ;;
    -fsanitize=thread | -shared) here=always ;;
    -fsanitize=*) here=${here:-checked} ;;
    -fno-sanitize=undefined) [ "$here" = always ] || here= ;;
  esac
done
if [ -n "$here" ] || [ -z "$text" ] || ! command -v tcc >/dev/null; then exec cc "$@" -O0; fi
# hd_exp and others are written with fused multiply-adds where cc has them
grep -qwm1 fma /proc/cpuinfo 2>/dev/null && fused="-D__FMA__ -D__builtin_fmaf=fmaf" || fused=
n=$#
while [ "$n" -gt 0 ]; do
  a=$1
  shift
  n=$((n - 1))
  case $a in
    -o) object=$1.o ;;
    -I) include=$1 ;;
  esac
  case $a in
    -x) # and the language
      shift
      n=$((n - 1))
      ;;
    -)
      tcc -w $fused -I"$include" -o "$object" -c - || exit
      set -- "$@" "$object"
      ;;
    *) set -- "$@" "$a" ;;
  esac
done
cc "$@"
status=$?
rm -f "$object"
exit $status
