// A shared library, but none that shares functions.
extern "C" int answer() { return 42; }
