#include "python_peer.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace bench {

namespace {

std::string read_line(int fd) {
    std::string line;
    for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';)
        line.push_back(c);
    return line;
}

[[noreturn]] void become(const std::string& python, const std::string& role, std::size_t size, int in, int out) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::setpgid(0, 0);  // so that processes that it starts end with it
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    const std::string bytes = std::to_string(size);
    ::execlp(python.c_str(), python.c_str(), SHARED_TENSOR_PYTHON_PEERS, role.c_str(), bytes.c_str(), nullptr);
    ::_exit(127);
}

}  // namespace

std::shared_ptr<PythonPeer> PythonPeer::start(const std::string& python, const std::string& role, std::size_t size) {
    if (python.empty()) return nullptr;
    std::array<int, 2> to{}, from{};
    if (::pipe2(to.data(), O_CLOEXEC) != 0 || ::pipe2(from.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    const pid_t pid = ::fork();
    if (pid == 0) become(python, role, size, to[0], from[1]);
    ::close(to[0]);
    ::close(from[1]);
    std::shared_ptr<PythonPeer> peer(new PythonPeer(pid, to[1], from[0]));
    return read_line(from[0]) == "ready" ? peer : nullptr;
}

PythonPeer::~PythonPeer() {
    ::close(to_);
    ::close(from_);
    ::kill(-pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
}

double PythonPeer::round(const std::string& what) {
    const std::string line = what + '\n';
    const bool asked = ::write(to_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    const std::string answer = asked ? read_line(from_) : std::string();
    if (answer.empty()) throw std::runtime_error("the Python peer has ended");
    return std::strtod(answer.c_str(), nullptr);
}

}  // namespace bench
