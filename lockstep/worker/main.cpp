// lockstep-worker: the ranks of `lockstep train` and its kin, with Lockstep's own models.

#include "lockstep/worker/worker_main.h"

int main(int argc, char** argv) { return lockstep::worker_main(argc, argv); }
