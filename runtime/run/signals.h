// Signals that people and batch systems send to a run.
#ifndef RUNTIME_RUN_SIGNALS_H
#define RUNTIME_RUN_SIGNALS_H

// SIGINT, SIGTERM, SIGHUP, SIGPIPE and SIGUSR2 end the run after the present step, with everything saved; SIGUSR1 asks
// for a checkpoint and lets the run go on. A signal within a second of the first one repeats it: GNU timeout
// sends SIGTERM twice, a terminal sends SIGINT to a launcher and to its children. A later one ends the process at once,
// except that SIGUSR2 is a warning, which SIGTERM may follow, and that SIGPIPE only repeats that nobody reads the
// output. A signal that was ignored at the start stays ignored. A full disk is an error of the write (SIGXFSZ).
void hd_catch_signals(void);
int hd_signal_stop(void);       // the signal that ends the run; 0: none so far
unsigned hd_signal_saves(void); // how often a checkpoint was asked for
#endif
