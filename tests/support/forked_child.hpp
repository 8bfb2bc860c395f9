#pragma once

// Children that are forked from the test itself and go on with its objects.

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace shared_tensor::test {

/// In a child Catch2's macros would speak to nobody.
inline void expect(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error("not so: " + what);
}

/// `use` throws an Error whose text holds `word`.
template <class Error, class Use>
void expect_throws(const Use& use, const std::string& what, const std::string& word = {}) {
    try {
        use();
    } catch (const Error& error) {
        return expect(std::string(error.what()).find(word) != std::string::npos, what + ": " + error.what());
    }
    expect(false, what);
}

/// `work` runs in a forked child, which then ends by _exit. One that takes two minutes is ended: it hangs.
class ForkedChild {
public:
    template <class Work>
    explicit ForkedChild(Work work) {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe2 failed");
        words_ = ends[0];
        pid_ = ::fork();
        if (pid_ == 0) run(ends[1], work);
        ::close(ends[1]);
        if (pid_ < 0) throw std::runtime_error("fork failed");
    }
    ForkedChild(ForkedChild&& other) noexcept
        : pid_(std::exchange(other.pid_, -1)), words_(std::exchange(other.words_, -1)) {}
    ForkedChild& operator=(ForkedChild&&) = delete;
    ~ForkedChild() {
        if (pid_ > 0) fault();
    }

    /// Waits for its end. What was wrong in it; empty: nothing.
    std::string fault() {
        int status = 0;
        if (::waitpid(std::exchange(pid_, -1), &status, 0) < 0) return "the child was lost";
        std::array<char, 1024> text{};
        const ssize_t size = ::read(words_, text.data(), text.size());
        ::close(std::exchange(words_, -1));
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
        if (size > 0) return {text.data(), static_cast<std::size_t>(size)};
        if (!WIFSIGNALED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
        return WTERMSIG(status) == SIGALRM ? "it hangs" : "signal " + std::to_string(WTERMSIG(status));
    }

private:
    template <class Work>
    [[noreturn]] static void run(int words, Work& work) {
        ::alarm(120);
        std::string fault;
        try {
            work();
        } catch (const std::exception& error) {
            fault = error.what();
        }
        [[maybe_unused]] const ssize_t told = ::write(words, fault.data(), std::min<std::size_t>(fault.size(), 1024));
        ::_exit(fault.empty() ? 0 : 1);
    }

    pid_t pid_ = -1;
    int words_ = -1;
};

/// The same, to its end.
template <class Work>
std::string error_in_child(Work work) {
    return ForkedChild(std::move(work)).fault();
}

/// Whether `question` is true in a forked child.
template <class Question>
bool in_child(Question question) {
    const std::string fault = error_in_child([&] { expect(question(), "it"); });
    if (!fault.empty() && fault != "not so: it") throw std::runtime_error(fault);
    return fault.empty();
}

/// Lets one process wait for a word of another one.
class Pipe {
public:
    Pipe() {
        if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
        for (const int end : ends_)
            ::close(end);
    }
    void tell(char word = '.') const {
        if (::write(ends_[1], &word, 1) != 1) throw std::runtime_error("write failed");
    }
    /// The word; nul after two minutes.
    char wait() const {
        pollfd one{ends_[0], POLLIN, 0};
        char word = 0;
        return ::poll(&one, 1, 120'000) == 1 && ::read(ends_[0], &word, 1) == 1 ? word : '\0';
    }

private:
    std::array<int, 2> ends_{};
};

}  // namespace shared_tensor::test
