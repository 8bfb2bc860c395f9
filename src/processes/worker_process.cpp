#include "processes/worker_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/system/host.hpp"

extern char** environ;

namespace shared_tensor::processes {

namespace {

void check(int error, const std::string& what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

/// The files and signals of a new process.
class SpawnSettings {
public:
    explicit SpawnSettings(int control) {
        check(::posix_spawn_file_actions_init(&files_), "posix_spawn_file_actions_init");
        check(::posix_spawnattr_init(&attributes_), "posix_spawnattr_init");
        check(::posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0), "addopen");
        check(::posix_spawn_file_actions_adddup2(&files_, control, kControl), "adddup2");
        check(::posix_spawn_file_actions_addclosefrom_np(&files_, kControl + 1), "addclosefrom");
        sigset_t none, all;
        ::sigemptyset(&none);
        ::sigfillset(&all);
        check(::posix_spawnattr_setsigmask(&attributes_, &none), "setsigmask");
        check(::posix_spawnattr_setsigdefault(&attributes_, &all), "setsigdefault");
        check(::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF), "setflags");
    }
    SpawnSettings(const SpawnSettings&) = delete;
    SpawnSettings& operator=(const SpawnSettings&) = delete;
    ~SpawnSettings() {
        ::posix_spawn_file_actions_destroy(&files_);
        ::posix_spawnattr_destroy(&attributes_);
    }

    const posix_spawn_file_actions_t* files() const { return &files_; }
    const posix_spawnattr_t* attributes() const { return &attributes_; }

private:
    posix_spawn_file_actions_t files_{};
    posix_spawnattr_t attributes_{};
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts)
        pointers.push_back(const_cast<char*>(text.c_str()));  // the interface of POSIX; nobody writes to it
    pointers.push_back(nullptr);
    return pointers;
}

std::string text_of(const siginfo_t& end) {
    if (end.si_code == CLD_EXITED) return "ended with exit status " + std::to_string(end.si_status);
    const char* name = ::sigabbrev_np(end.si_status);
    const std::string signal = name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(end.si_status);
    if (end.si_status != SIGKILL) return "was ended by " + signal;
    return "was ended by " + signal + " (the kernel sends it if memory runs out)";
}

}  // namespace

std::vector<std::string> environment() {
    const std::string own = std::string(kSocketVariable) + '=';
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        if (!std::string_view(*variable).starts_with(own)) variables.emplace_back(*variable);
    }
    return variables;
}

WorkerProcess::WorkerProcess(const std::vector<std::string>& command, std::vector<std::string> environment,
                             const std::string& socket) {
    std::array<int, 2> ends{-1, -1};
    control_ = ProcessFd::opened([&] {
        ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data());
        return ends[0];
    });
    SHARED_TENSOR_CHECK_ERRNO(control_.get(), "socketpair");
    const UniqueFd theirs(ends[1]);
    const SpawnSettings settings(theirs.get());
    environment.push_back(std::string(kSocketVariable) + '=' + socket);
    check(::posix_spawnp(&pid_, command.front().c_str(), settings.files(), settings.attributes(),
                         pointers_to(command).data(), pointers_to(environment).data()),
          command.front());
    descriptor_ = process_descriptor(pid_);
}

WorkerProcess::~WorkerProcess() {
    if (end()) return;
    kill();
    siginfo_t end{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED) != 0 && errno == EINTR) {
    }
}

bool WorkerProcess::became_ready() {
    std::array<char, 16'384> some{};
    while (control() >= 0) {
        const ssize_t got = ::recv(control_.get(), some.data(), some.size(), MSG_DONTWAIT);
        if (got < 0) return false;
        description_.append(some.data(), static_cast<std::size_t>(got));
        is_closed_ = got == 0;
        is_ready_ = description_.ends_with('\n');
        if (is_ready_) return true;
    }
    return false;
}

std::optional<std::string> WorkerProcess::end() {
    if (end_) return end_;
    siginfo_t end{};
    const int result = ::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG);
    if (result == 0 && end.si_pid == pid_) end_ = how(end);
    if (result != 0 && errno == ECHILD) end_ = "ended; how is not known, because this program ignores or takes SIGCHLD";
    return end_;
}

/// By its status and by what it wrote while it ended.
std::string WorkerProcess::how(const siginfo_t& end) const {
    std::array<char, 256> buffer{};
    const ssize_t got = is_ready_ ? ::recv(control_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) : 0;
    if (got <= 0) return text_of(end);
    const std::string_view written(buffer.data(), static_cast<std::size_t>(got));
    if (written.starts_with(kEnds)) return "was ended because " + std::string(written.substr(kEnds.size()));
    return text_of(end) + " in the function " + std::string(written);
}

void WorkerProcess::tell_to_end() const { ::shutdown(control_.get(), SHUT_WR); }

void WorkerProcess::kill() const {
    if (!end_) ::kill(pid_, SIGKILL);
}

}  // namespace shared_tensor::processes
