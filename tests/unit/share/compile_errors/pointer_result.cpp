// expect: SHARE: a function that returns a pointer cannot be shared: return the value
#include <shared_tensor/share.hpp>

const char* name() { return "x"; }
SHARE(name);
