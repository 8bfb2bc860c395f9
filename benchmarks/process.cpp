#include "process.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace bench {

namespace {

[[noreturn]] void become(const std::vector<std::string>& arguments, int out) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out, STDOUT_FILENO);
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
        argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
}

std::string read_line(int fd) {
    std::string line;
    for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';)
        line.push_back(c);
    return line;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) become(arguments, ends[1]);
    ::close(ends[1]);
    address_ = read_line(ends[0]);
    ::close(ends[0]);
    if (address_.empty()) throw std::runtime_error(arguments[0] + " did not start");
}

Process::~Process() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

int Process::port() const { return std::atoi(address_.substr(address_.rfind(':') + 1).c_str()); }

void pin(bool to_one_core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    const unsigned cores = to_one_core ? 1 : std::thread::hardware_concurrency();
    for (unsigned core = 0; core < cores; ++core)
        CPU_SET(core, &set);
    ::sched_setaffinity(0, sizeof set, &set);
}

std::string own_path() {
    char path[PATH_MAX];
    const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
    return {path, static_cast<std::size_t>(size > 0 ? size : 0)};
}

}  // namespace bench
