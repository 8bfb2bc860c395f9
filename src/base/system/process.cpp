#include "base/system/process.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace shared_tensor {

UniqueFd process_descriptor(pid_t pid) {
    return pid > 0 ? UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) : UniqueFd();
}

}  // namespace shared_tensor
