// Preloaded into a keeper: its second fork() fails, as it does when the system has no process left.

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>

extern "C" pid_t fork() {
    static int calls = 0;
    if (++calls == 2) {
        errno = EAGAIN;
        return -1;
    }
    return reinterpret_cast<pid_t (*)()>(dlsym(RTLD_NEXT, "fork"))();
}
