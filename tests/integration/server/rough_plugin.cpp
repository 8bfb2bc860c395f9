// Functions that treat their process badly: they log without end, never return, or end it. While it is loaded, the
// variable ROUGH_PLUGIN_AT_LOAD says what it does; it first writes a byte to the descriptor ROUGH_PLUGIN_TELLS.

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <shared_tensor/share.hpp>

namespace c10 {

/// Has the name and the form of an exception of libtorch.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace c10

namespace {

using shared_tensor::Context;
using shared_tensor::LogLevel;

[[noreturn]] void wait_for_ever() {
    std::fputs("rough_plugin: has begun\n", stderr);
    for (;;)
        ::pause();
}

void log_equal_lines(Context& context, const std::string& text, int count) {
    for (int i = 0; i < count; ++i)
        context.log(LogLevel::warn, text);
}
void log_numbered_lines(Context& context, const std::string& text, int count) {
    for (int i = 0; i < count; ++i)
        context.log(LogLevel::warn, text + ' ' + std::to_string(i));
}
/// `lines` lines: the first two say what is wrong, the rest is a stack.
void throw_as_torch(int lines) {
    std::string text = "mat1 and mat2 shapes cannot be multiplied\nadvice in a second line\nException raised from f";
    for (int i = 3; i < lines; ++i)
        text += "\nframe #" + std::to_string(i - 3) + ": some_function_of_libtorch(" + std::string(60, 'x') + ")";
    throw c10::Error(text);
}

std::string traceparent(Context& context) { return std::string(context.caller().traceparent); }

void log_from_a_thread(Context& context, const std::string& text) {
    std::thread([&] { context.log(LogLevel::warn, text); }).join();
}

/// As libraries do, which do not know the log.
void print_errors(int count) {
    for (int i = 0; i < count; ++i)
        std::fprintf(stderr, "an error that a library prints, number %d\n", i);
}

void never_return() { wait_for_ever(); }
void lock_output_for_ever() {
    ::flockfile(stdout);
    wait_for_ever();
}

/// Its frames are small: a frame larger than a stack's guard page could write into the stack of another thread.
// NOLINTNEXTLINE(misc-no-recursion): which is its purpose
[[gnu::noinline]] int recurse(volatile int* deeper) {
    volatile int here[100] = {*deeper};
    return recurse(here) + here[0];
}

void end_process(const std::string& how) {
    if (how == "exit") std::exit(0);
    if (how == "exit in a thread") std::thread([] { std::exit(0); }).join();
    if (how == "quick_exit") std::quick_exit(0);
    if (how == "abort") std::abort();
    if (how == "throw in a thread") std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
    if (how == "bad access") *static_cast<volatile int*>(nullptr) = 1;
    volatile int start = 0;
    if (how == "deep recursion") recurse(&start);
}

/// Loads a copy of this plugin, whose initialiser never returns: its thread holds the lock of the loader from then on.
void crash_while_loading(const std::string& copy) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    ::setenv("ROUGH_PLUGIN_AT_LOAD", "wait", 1);
    ::setenv("ROUGH_PLUGIN_TELLS", std::to_string(ends[1]).c_str(), 1);
    std::thread([&] { ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL); }).detach();
    char byte = 0;
    if (::read(ends[0], &byte, 1) == 1) std::abort();
}

std::size_t allocate(std::size_t bytes) { return std::vector<char>(bytes).size(); }

std::size_t open_files() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

/// How a child that was forked ends, as its parent sees it.
int exit_code_of_child() {
    const pid_t child = ::fork();
    if (child == 0) std::exit(7);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

const bool loaded = [] {
    const rlimit no_core_files{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core_files);
    const char* const variable = std::getenv("ROUGH_PLUGIN_AT_LOAD");
    const std::string_view what = variable == nullptr ? "" : variable;
    if (!what.empty()) std::fprintf(stderr, "rough_plugin: %s\n", variable);
    if (const char* const reader = std::getenv("ROUGH_PLUGIN_TELLS")) (void)!::write(std::atoi(reader), "", 1);
    if (what == "wait") wait_for_ever();
    if (what == "exit") std::exit(0);
    return true;
}();

}  // namespace

SHARE(log_equal_lines, arg("text"), arg("count"));
SHARE(log_numbered_lines, arg("text"), arg("count"));
SHARE(print_errors, arg("count"));
SHARE(throw_as_torch, arg("lines"));
SHARE(traceparent);
SHARE(log_from_a_thread, arg("text"));
SHARE_AS("never_return_inline", never_return, execution::inline_);
SHARE(lock_output_for_ever);
SHARE(end_process, arg("how"));
SHARE_AS("end_process_inline", end_process, arg("how"), execution::inline_);
SHARE(crash_while_loading, arg("copy"));
SHARE(allocate, arg("bytes"));
SHARE(open_files);
SHARE(exit_code_of_child);
