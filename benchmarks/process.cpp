#include "process.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <stdexcept>

namespace bench {

namespace {

std::string own_path() {
    char path[PATH_MAX];
    const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
    return {path, static_cast<std::size_t>(size > 0 ? size : 0)};
}

std::optional<cpu_set_t> cores_of_servers;  // not set: those of this process

[[noreturn]] void become(std::vector<std::string> arguments, int out) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cores_of_servers) ::sched_setaffinity(0, sizeof *cores_of_servers, &*cores_of_servers);
    ::dup2(out, STDOUT_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : arguments)
        argv.push_back(argument.data());
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

int run_reporting(const std::function<void()>& work) {
    try {
        work();
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "shared_tensor_bench: " << error.what() << '\n';
        return 1;
    }
}

}  // namespace

ServerProcess::ServerProcess(const std::vector<std::string>& role) {
    std::vector<std::string> arguments{own_path(), "--serve"};
    arguments.insert(arguments.end(), role.begin(), role.end());
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) become(arguments, ends[1]);
    ::close(ends[1]);
    if (pid_ > 0) address_ = read_line(ends[0]);
    ::close(ends[0]);
    if (!address_.empty()) return;
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    throw std::runtime_error("the server " + role.front() + " did not start");
}

ServerProcess::~ServerProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

int ServerProcess::port() const { return std::atoi(address_.substr(address_.rfind(':') + 1).c_str()); }

bool in_child(const std::function<void()>& work) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("fork");
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int status = run_reporting(work);
        std::fflush(nullptr);
        ::_exit(status);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        std::cerr << "shared_tensor_bench: a process of it was ended by signal " << WTERMSIG(status)
                  << (WTERMSIG(status) == SIGKILL ? ": was there memory enough?" : "") << '\n';
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void place(Placement placement) {
    if (placement == Placement::all_cores) return;
    cpu_set_t allowed, first;
    CPU_ZERO(&first);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw std::runtime_error("sched_getaffinity");
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++core) {
        if (CPU_ISSET(core, &allowed)) CPU_SET(core, &first);
    }
    if (::sched_setaffinity(0, sizeof first, &first) != 0) throw std::runtime_error("sched_setaffinity");
    if (placement == Placement::one_core) return;
    if (CPU_COUNT(&allowed) < 2) throw std::runtime_error("client and server on two cores need two cores");
    CPU_XOR(&cores_of_servers.emplace(), &allowed, &first);
}

}  // namespace bench
