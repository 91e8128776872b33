#include <cstdio>
int main(int, char**) { std::puts("lockstep"); return 0; }
