// shared-tensor-keeper: see --help.

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <cxxopts.hpp>
#include <shared_tensor/version.hpp>

#include "base/system/unique_fd.hpp"

namespace {

using shared_tensor::UniqueFd;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kFirstDescriptor = 3;               // sd_listen_fds(3)
constexpr std::size_t kMostDescriptors = 10'000;  // their names have to fit into one variable of the environment

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void say(const std::string& text) { std::cerr << "shared-tensor-keeper: " + text + '\n'; }

struct Options {
    std::size_t descriptors = 4096;
    std::vector<std::string> listen;
    std::vector<std::string> command;
};

/// `option`: what chose the path, for the error.
sockaddr_un unix_address(const std::string& option, const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        throw std::invalid_argument(option + ": " + path + " is too long for a Unix socket (107 characters at most)");
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

/// Mode 0600. Replaces the file of a socket on which nobody listens.
UniqueFd listen_on_path(const std::string& path) {
    const sockaddr_un address = unix_address("--listen", path);
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct stat file {};
    if (::stat(path.c_str(), &file) == 0 && S_ISSOCK(file.st_mode) &&
        ::connect(probe.get(), name, sizeof address) != 0 && errno == ECONNREFUSED)
        ::unlink(path.c_str());
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const mode_t before = ::umask(0177);
    const int bound = ::bind(socket.get(), name, sizeof address);
    ::umask(before);
    if (bound != 0 || ::listen(socket.get(), SOMAXCONN) != 0) fail("--listen " + path);
    return socket;
}

/// `address`: "HOST:PORT", "[::1]:PORT" or "PORT" for TCP; or a path with "/" for a Unix socket.
UniqueFd listen_on(const std::string& address) {
    if (address.find('/') != std::string::npos) return listen_on_path(address);
    const std::size_t colon = address.rfind(':');
    std::string host = colon == std::string::npos ? "127.0.0.1" : address.substr(0, colon);
    const std::string port = colon == std::string::npos ? address : address.substr(colon + 1);
    std::uint16_t number = 0;  // getaddrinfo() takes 99999 for another port
    const auto read = std::from_chars(port.data(), port.data() + port.size(), number);
    if (read.ec != std::errc() || read.ptr != port.data() + port.size())
        throw std::invalid_argument("--listen " + address + ": a port is a number of at most 65535");
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* all = nullptr;
    if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &all); error != 0)
        throw std::invalid_argument("--listen " + address + ": " + ::gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> freed(all, &::freeaddrinfo);
    UniqueFd socket(::socket(all->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), all->ai_addr, all->ai_addrlen) != 0 || ::listen(socket.get(), SOMAXCONN) != 0)
        fail("--listen " + address);
    return socket;
}

/// What the program that is kept alive sends (sd_notify(3)).
struct Message {
    std::string text;
    std::vector<UniqueFd> descriptors;

    /// The value of NAME=VALUE in a line of its own; nullopt without it.
    std::optional<std::string> value(const std::string& name) const {
        std::string_view rest = text;
        while (!rest.empty()) {
            const std::string_view line = rest.substr(0, rest.find('\n'));
            if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=')
                return std::string(line.substr(name.size() + 1));
            rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        }
        return std::nullopt;
    }
};

/// The socket for messages. It is in a folder of this user, so that other users cannot send to it: a descriptor of
/// theirs could keep close() waiting.
class Messages {
public:
    Messages() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        const char* const parent = std::getenv("TMPDIR");
        folder_ = std::string(parent != nullptr ? parent : "/tmp") + "/shared-tensor-keeper-XXXXXX";
        unix_address("TMPDIR", name());  // throws before the folder is there
        if (::mkdtemp(folder_.data()) == nullptr) fail("cannot make the folder " + folder_ + " (set TMPDIR)");
        const sockaddr_un address = unix_address("TMPDIR", name());
        if (!socket_ || ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            fail("cannot listen on " + name());
    }
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;
    ~Messages() {
        ::unlink(name().c_str());
        ::rmdir(folder_.c_str());
    }

    int fd() const { return socket_.get(); }
    std::string name() const { return folder_ + "/notify.sock"; }

    /// The next message; nullopt if none waits.
    std::optional<Message> next() const {
        std::array<char, 8192> text{};
        constexpr std::size_t kMostFds = 16;
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostFds * sizeof(int))> control{};
        iovec part{text.data(), text.size()};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        ssize_t size = 0;
        do {
            size = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
        } while (size < 0 && errno == EINTR);
        if (size < 0) return std::nullopt;
        Message message{{text.data(), static_cast<std::size_t>(size)}, {}};
        for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
            if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
            std::vector<int> fds((one->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            std::memcpy(fds.data(), CMSG_DATA(one), fds.size() * sizeof(int));
            for (const int fd : fds)
                message.descriptors.emplace_back(fd);
        }
        return message;
    }

private:
    UniqueFd socket_;
    std::string folder_;
};

class Keeper {
public:
    explicit Keeper(Options options) : options_(std::move(options)) {
        for (const std::string& address : options_.listen)
            sockets_.push_back(listen_on(address));
        sigset_t wanted;
        ::sigemptyset(&wanted);
        for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR2})
            ::sigaddset(&wanted, signal);
        ::sigprocmask(SIG_BLOCK, &wanted, &usual_signals_);
        signals_.reset(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
        if (!signals_) fail("signalfd");
    }

    /// Runs the program until it ends for good. Returns the exit status.
    int run() {
        start();
        while (!status_) {
            std::array<pollfd, 2> ready{pollfd{messages_.fd(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0}};
            ::poll(ready.data(), ready.size(), time_to_start());
            read_messages();
            read_signals();
            if (next_start_ && *next_start_ <= Clock::now()) start();
        }
        return *status_;
    }

private:
    int time_to_start() const {
        if (!next_start_) return -1;
        const auto left = std::chrono::ceil<milliseconds>(*next_start_ - Clock::now());
        return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }

    void start() {
        next_start_.reset();
        const bool is_first = began_ == Clock::time_point();
        began_ = Clock::now();
        ready_at_.reset();
        const pid_t child = ::fork();
        if (child == 0) run_program();
        if (child < 0 && is_first) fail("fork");
        child_ = std::max(child, 0);
        if (child < 0) start_again(std::string("could not be started (fork: ") + std::strerror(errno) + ')', true);
    }

    /// `slower`: after twice the last delay.
    void start_again(const std::string& why, bool slower) {
        delay_ = slower ? std::clamp(2 * delay_, milliseconds(100), milliseconds(10'000)) : milliseconds(0);
        next_start_ = Clock::now() + delay_;
        say(options_.command.front() + ' ' + why + "; it starts again in " + std::to_string(delay_.count()) +
            " ms with the " + std::to_string(kept_.size()) + " descriptors that it left");
    }

    /// In the child. Only the descriptors that are kept reach the program, from 3 on.
    [[noreturn]] void run_program() {
        std::string names;
        std::vector<UniqueFd> moved;  // to numbers above those that are filled below
        const auto pass = [&, first_free = kFirstDescriptor + static_cast<int>(sockets_.size() + kept_.size())](
                              const UniqueFd& descriptor, const std::string& name) {
            moved.emplace_back(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, first_free));
            names += (names.empty() ? "" : ":") + name;
        };
        for (const UniqueFd& socket : sockets_)
            pass(socket, "listening");
        for (const auto& [name, descriptor] : kept_)
            pass(descriptor, name);
        for (std::size_t i = 0; i < moved.size(); ++i) {
            if (::dup2(moved[i].get(), kFirstDescriptor + static_cast<int>(i)) < 0) give_up("dup2");
        }
        ::setenv("NOTIFY_SOCKET", messages_.name().c_str(), 1);
        ::setenv("FDSTORE", std::to_string(options_.descriptors).c_str(), 1);
        ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
        ::setenv("LISTEN_FDS", std::to_string(moved.size()).c_str(), 1);
        ::setenv("LISTEN_FDNAMES", names.c_str(), 1);
        ::sigprocmask(SIG_SETMASK, &usual_signals_, nullptr);
        std::vector<char*> arguments;
        for (std::string& one : options_.command)
            arguments.push_back(one.data());
        arguments.push_back(nullptr);
        ::execvp(arguments.front(), arguments.data());
        give_up(options_.command.front().c_str());
    }

    [[noreturn]] static void give_up(const char* what) {
        say(std::string(what) + ": " + std::strerror(errno));
        ::_exit(127);
    }

    void read_messages() {
        while (std::optional<Message> message = messages_.next()) {
            if (message->value("READY") == "1") {
                was_ready_ = true;
                if (!ready_at_) ready_at_ = Clock::now();  // it says so again after a reload
            }
            const std::string name = message->value("FDNAME").value_or("");
            if (message->value("FDSTORE") == "1" && message->descriptors.size() == 1) {
                if (kept_.size() < options_.descriptors || kept_.contains(name)) {
                    kept_[name] = std::move(message->descriptors.front());
                } else {
                    say("all " + std::to_string(options_.descriptors) + " descriptors (--descriptors) are in use");
                }
            }
            if (message->value("FDSTOREREMOVE") == "1") kept_.erase(name);
        }  // BARRIER=1: its descriptor is closed here
    }

    void read_signals() {
        signalfd_siginfo signal{};
        while (::read(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
            switch (static_cast<int>(signal.ssi_signo)) {
                case SIGCHLD: reap(); break;
                case SIGHUP: pass_on(SIGHUP); break;
                case SIGUSR2:
                    replaces_ = child_ > 0;  // else it starts soon anyhow
                    pass_on(SIGTERM);
                    break;
                default: {
                    const bool is_told = replaces_ && !ends_;  // a second signal ends the server at once
                    ends_ = true;
                    if (child_ == 0) status_ = 0;
                    if (!is_told) pass_on(static_cast<int>(signal.ssi_signo));
                }
            }
        }
    }

    void pass_on(int signal) const {
        if (child_ > 0) ::kill(child_, signal);
    }

    /// Also of processes that lost their parent, if this is the first process of a container.
    void reap() {
        int status = 0;
        for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
            if (ended == child_) program_ended(status);
        }
    }

    void program_ended(int status) {
        child_ = 0;
        read_messages();  // what it sent before its end
        const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        const bool is_replaced = std::exchange(replaces_, false);
        // SIGKILL comes from outside, and says nothing of the command.
        const bool cannot_start = !was_ready_ && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (ends_ || (!is_replaced && (code == 0 || cannot_start))) {
            status_ = code;
            return;
        }
        const bool crashed_early = !is_replaced && (!ready_at_ || Clock::now() - *ready_at_ < std::chrono::seconds(1));
        start_again(is_replaced           ? "was told to end"
                    : WIFSIGNALED(status) ? std::string("was killed by signal ") + ::strsignal(WTERMSIG(status))
                                          : "exited with " + std::to_string(code),
                    crashed_early);
    }

    Options options_;
    sigset_t usual_signals_{};
    UniqueFd signals_;
    Messages messages_;
    std::vector<UniqueFd> sockets_;
    std::map<std::string, UniqueFd> kept_;
    pid_t child_ = 0;  // 0: the program does not run
    Clock::time_point began_{};
    std::optional<Clock::time_point> ready_at_;  ///< when this run of the program was ready
    std::optional<Clock::time_point> next_start_;
    milliseconds delay_{0};
    bool was_ready_ = false;  // it has started once: the command line is good
    bool replaces_ = false;   // the program was told to end, and is then started again
    bool ends_ = false;
    std::optional<int> status_;
};

/// Leaves descriptors for this program itself.
void raise_descriptor_limit(std::size_t wanted) {
    constexpr rlim_t kOwn = 64;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) fail("getrlimit");
    if (limit.rlim_cur >= 2 * wanted + kOwn) return;
    limit.rlim_cur = std::min<rlim_t>(2 * wanted + kOwn, limit.rlim_max);  // twice: see Keeper::run_program()
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * wanted + kOwn) {
        throw std::invalid_argument("--descriptors " + std::to_string(wanted) + " needs a limit of " +
                                    std::to_string(2 * wanted + kOwn) + " open files (ulimit -Hn), and it is " +
                                    std::to_string(limit.rlim_max));
    }
}

/// Empty: printed what was asked for.
std::optional<Options> parse(int argc, char** argv) {
    Options options;
    cxxopts::Options parser("shared-tensor-keeper",
                            "Starts a server, keeps what is to outlive its process (named tensors, finished tasks,\n"
                            "idempotency keys), and starts it again when it crashes.\n");
    parser.custom_help("[OPTIONS] -- COMMAND [ARGUMENTS]");
    parser.add_options()("descriptors", "named tensors, sets and results of more than 64 KiB that are kept",
                         cxxopts::value(options.descriptors)->default_value("4096"))(
        "listen",
        "[HOST:]PORT, or the path of a Unix socket, on which the server listens in place of its own host,\n"
        "port and unix-socket: clients wait there while the server starts again (repeatable)",
        cxxopts::value(options.listen))("version", "print the version")("h,help", "print this text");
    const int own = static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
    const auto parsed = parser.parse(own, argv);
    if (parsed.count("help") > 0) {
        std::cout << parser.help()
                  << "\n  SIGTERM, SIGINT  end the server and then the keeper\n  SIGHUP           is passed on\n"
                     "  SIGUSR2          ends the server and starts it again, for an upgrade\n"
                     "\nThe environment variable TMPDIR says where it may make a folder for its socket (/tmp).\n";
        return std::nullopt;
    }
    if (parsed.count("version") > 0) {
        std::cout << "shared-tensor-keeper " SHARED_TENSOR_VERSION "\n";
        return std::nullopt;
    }
    if (!parsed.unmatched().empty() || own + 1 >= argc)
        throw std::invalid_argument(
            "write the server's command behind \"--\": shared-tensor-keeper -- "
            "shared-tensor-server --port 2537");
    if (options.descriptors == 0 || options.descriptors > kMostDescriptors)
        throw std::invalid_argument("--descriptors must be from 1 to " + std::to_string(kMostDescriptors));
    options.command.assign(argv + own + 1, argv + argc);
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    shared_tensor::fill_standard_descriptors();
    try {
        const std::optional<Options> options = parse(argc, argv);
        if (!options) return 0;
        raise_descriptor_limit(options->descriptors);
        return Keeper(*options).run();
    } catch (const std::exception& error) {
        say(error.what());
        return 2;
    }
}
