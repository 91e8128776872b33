// lockstep: the command. It never loads LibTorch; lockstep-worker does.

#include "lockstep/cli/command.h"

int main(int argc, char** argv) { return lockstep::cli::run_program({argv + 1, argv + argc}); }
