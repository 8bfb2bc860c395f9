#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/log/crash.hpp"
#include "base/log/current_call.hpp"
#include "base/log/last_lines.hpp"
#include "base/log/line_file.hpp"
#include "base/log/log.hpp"
#include "base/log/log_text.hpp"
#include "base/log/standard_error.hpp"
#include "base/system/unique_fd.hpp"
#include "support/daemon.hpp"
#include "support/forked_child.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::seconds kLong{30};

/// Standard error goes elsewhere while it lives; the level is restored too.
class Redirected {
public:
    explicit Redirected(int to) : before_(::dup(STDERR_FILENO)), level_(log::level()) {
        log::flush(kLong);
        ::dup2(to, STDERR_FILENO);
    }
    Redirected(const Redirected&) = delete;
    Redirected& operator=(const Redirected&) = delete;
    ~Redirected() {
        log::flush(kLong);
        ::dup2(before_.get(), STDERR_FILENO);
        log::set_level(level_);
    }

private:
    UniqueFd before_;
    log::Level level_;
};

UniqueFd temporary_file() { return UniqueFd(::open("/tmp", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600)); }

std::string content_of(const UniqueFd& file) {
    std::string text(static_cast<std::size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
    REQUIRE(::pread(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    return text;
}

template <class Log>
std::string logged(Log log, log::Level level = log::Level::trace) {
    const auto file = temporary_file();
    {
        const Redirected redirected(file.get());
        log::set_level(level);
        log();
    }
    return content_of(file);
}

struct Pipe {
    UniqueFd read_end, write_end;
};

/// Of one page, so that it is soon full.
Pipe small_pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Reads until `end` came.
std::string text_until(const UniqueFd& read_end, const std::string& end) {
    std::string text;
    while (!text.ends_with(end)) {
        char bytes[4096];
        const ssize_t got = ::read(read_end.get(), bytes, sizeof bytes);
        REQUIRE(got > 0);
        text.append(bytes, static_cast<std::size_t>(got));
    }
    return text;
}

}  // namespace

TEST_CASE("a line has time, level and text, and texts of all levels begin in the same column", "[util][log]") {
    const auto text = logged([] {
        log::debug("listening on port ", 2537);
        log::info("x");
        log::warn("x");
        log::error("x");
        log::write(log::Level::trace, "x");
    });
    const std::string time = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z ";
    const std::string lines = time + "debug  listening on port 2537\n" + time + "info   x\n" + time + "warn   x\n" +
                              time + "error  x\n" + time + "trace  x\n";
    CHECK(std::regex_match(text, std::regex(lines)));
}

TEST_CASE("what is below the level is dropped, and its parts are not put together", "[util][log]") {
    static int printed = 0;
    struct Costly {
        static std::ostream& print(std::ostream& out) {
            ++printed;
            return out;
        }
    };
    const auto log_all = [] {
        log::info("quiet", &Costly::print);
        log::write(log::Level::info, "quiet");
        log::warn("loud");
    };
    CHECK(logged(log_all, log::Level::warn).ends_with("warn   loud\n"));
    CHECK(logged(log_all, log::Level::off).empty());
    CHECK(printed == 0);
}

TEST_CASE("no text can fake a line or talk to the terminal", "[util][log]") {
    const auto text = logged([] { log::info("a\nb\rc\x1b[31m\td\x7f\xc3\xa4"); });
    CHECK(text.ends_with("a b c [31m d \xc3\xa4\n"));
    // U+0085, U+009B (begins an escape sequence) and U+009F; U+00A0 and U+00DB are none, nor is half a character.
    const auto of_two_bytes = logged([] {
        log::info(
            "a\xc2\x85"
            "b\xc2\x9b"
            "31m\xc2\x9f\xc2\xa0\xc3\x9b\xc2");
    });
    CHECK(of_two_bytes.ends_with("a b 31m \xc2\xa0\xc3\x9b\xc2\n"));
    const auto of_three_bytes = logged([] { log::info("a\u2028b\u202ec\u2066d\u2069e\u2027f\u202fg\u2065h\u206ai"); });
    CHECK(of_three_bytes.ends_with("a b c d e\u2027f\u202fg\u2065h\u206ai\n"));
}

TEST_CASE("control characters of two bytes are blanks in fields and details, and escaped in JSON", "[util][log]") {
    const CurrentCall call{"f",
                           "cert:a\xc2\x9b"
                           "b",
                           "r-1",
                           "\"\xc2\x80",
                           {},
                           {}};
    const log::Entry entry{.level = log::Level::warn, .message = "m\xc2\x9b", .details = "d\xc2\x9b"};
    const std::string text = log::body_of(log::Format::text, entry, &call).text;
    CHECK(text == "m  function=f principal=\"cert:a b\" request_id=r-1 id=\"\\\" \"\n    | d ");
    const std::string json = log::body_of(log::Format::json, entry, &call).text;
    CHECK(json.find('\xc2') == std::string::npos);
    CHECK(json.find("cert:a\\u009bb") != std::string::npos);
    CHECK(json.find("\\\"\\u0080") != std::string::npos);
    const log::Entry turned{.level = log::Level::warn, .message = "\u202e\u2066\u202f"};
    CHECK(log::body_of(log::Format::json, turned, nullptr).text.find("\\u202e\\u2066\u202f") != std::string::npos);
    CHECK(nlohmann::json::parse('{' + json + '}').at("principal") ==
          "cert:a\xc2\x9b"
          "b");
}

TEST_CASE("the last line has no control characters", "[util][log]") {
    const auto text = logged([] {
        const CurrentCall call{"f",
                               "cert:a\xc2\x9b"
                               "b\x1b",
                               {},
                               {},
                               {},
                               {}};
        const InCall in_call(call);
        write_last_line("why");
    });
    CHECK(text.ends_with(": why in the function f, called by cert:a b \n"));
}

TEST_CASE("a line is at most 4 KiB, cut between two characters", "[util][log]") {
    std::string umlauts = "a";
    for (int i = 0; i < 5000; ++i)
        umlauts += "\xc3\xa4";
    for (const auto* padding : {"", "a"}) {  // the limit falls between characters or into one
        const auto text = logged([&] { log::info(padding, umlauts); });
        CHECK(text.size() <= 4096);
        CHECK(text.size() >= 4094);
        CHECK(text.ends_with("\xc3\xa4...\n"));
    }
}

TEST_CASE("lines of several threads do not mix", "[util][log]") {
    const auto text = logged([] {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([t] {
                for (int i = 0; i < 100; ++i)
                    log::info(i + 100, std::string(197, static_cast<char>('a' + t)));
            });
        }
    });
    std::istringstream lines(text);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        REQUIRE(line.size() == 232);
        CHECK(line.substr(35) == std::string(197, line.back()));
    }
    CHECK(count == 400);
}

TEST_CASE("a full disk or a reader that went away costs the line, not the process", "[util][log]") {
    auto [read_end, write_end] = small_pipe();
    read_end.reset();
    const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    REQUIRE(full);
    for (const int nowhere : {write_end.get(), full.get()}) {
        const Redirected redirected(nowhere);
        log::error("nowhere to go");
        log::error("and again");
        CHECK(log::flush(kLong));
    }
}

TEST_CASE("a pipe that nobody reads blocks no line; what was dropped is counted when it is read", "[util][log]") {
    const auto [read_end, write_end] = small_pipe();
    std::string text;
    constexpr int kLines = 5'000;
    {
        const Redirected redirected(write_end.get());
        log::set_level(log::Level::info);
        for (int i = 0; i < kLines; ++i)
            log::info("line ", i);
        CHECK_FALSE(log::flush(std::chrono::milliseconds(1)));
        log::info("the last line");
        text = text_until(read_end, "the last line\n");
    }
    // More than one such line, if the pipe was not full at once.
    const std::regex dropped_line("warn   (\\d+) log lines were dropped: standard error was not read\n");
    std::ptrdiff_t dropped = 0, counts = 0;
    for (std::sregex_iterator found(text.begin(), text.end(), dropped_line), end; found != end; ++found, ++counts)
        dropped += std::stol((*found)[1]);
    CHECK(counts > 0);
    CHECK(std::count(text.begin(), text.end(), '\n') - counts + dropped == kLines + 1);
    CHECK(text.find("line 4999\n") != std::string::npos);
}

#if !defined(__SANITIZE_THREAD__)  // it allows no thread after a fork
namespace {

/// Blocks until the log thread waits for the full pipe. Then it holds no lock of the allocator: AddressSanitizer's is
/// not released in a forked child, unlike glibc's.
void wait_for_stuck_log(const UniqueFd& write_end) {
    const auto is_stuck = [&] {
        pollfd poll{write_end.get(), POLLOUT, 0};
        if (::poll(&poll, 1, 0) != 0) return false;
        for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
            std::ifstream stat(thread.path() / "stat");
            const std::string text{std::istreambuf_iterator<char>(stat), {}};
            if (text.find("(st-log) S") != std::string::npos) return true;
        }
        return false;
    };
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (!is_stuck()) {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

TEST_CASE("a forked child writes lines of its own, though its parent's log is stuck", "[util][log]") {
    const auto [read_end, write_end] = small_pipe();
    const auto file = temporary_file();
    const Redirected redirected(write_end.get());
    log::set_level(log::Level::info);
    for (int i = 0; i < 1'000; ++i)
        log::info("line ", i);
    wait_for_stuck_log(write_end);
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(file.get(), STDERR_FILENO);
        log::info("of the child");
        ::_exit(log::flush(kLong) ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    const auto text = content_of(file);
    CHECK(text.ends_with("of the child\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
    text_until(read_end, "line 999\n");
}
#endif

TEST_CASE("the last line names the call, is one line of a bounded size, whatever the client sent, and keeps handlers",
          "[util][log]") {
    const auto text = logged([] {
        const std::string id = "x\ny\x1b[31m" + std::string(5'000, 'z');
        const CurrentCall outer{"f", "uid:1", "r-1", id, {}, {}};
        const InCall in_outer(outer);
        {
            const CurrentCall inner{"inner", "uid:2", {}, {}, {}, {}};
            const InCall in_inner(inner);
        }
        write_last_line("why");
    });
    CHECK(text.find(": why in the function f, called by uid:1, request r-1, id x y [31mzzz") != std::string::npos);
    CHECK(text.find('\n') == text.size() - 1);
    CHECK(text.size() <= 1'024);
    CHECK(test::in_child([] {  // a sanitizer's handler, for example, stays
        ::signal(SIGABRT, [](int) { ::_exit(0); });
        write_last_line_of_signals([]() noexcept {});
        ::abort();
        return false;
    }));
}

namespace {

/// The lines that `log` writes as JSON.
std::vector<nlohmann::json> logged_json(const std::function<void()>& log) {
    log::flush(kLong);
    log::set_format(log::Format::json);
    const std::string text = logged(log);
    log::set_format(log::Format::text);
    std::istringstream lines(text);
    std::vector<nlohmann::json> objects;
    for (std::string line; std::getline(lines, line);)
        objects.push_back(nlohmann::json::parse(line));
    return objects;
}

}  // namespace

TEST_CASE("a line has the fields of the call that its thread works for, and its own", "[util][log]") {
    constexpr std::string_view kTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const CurrentCall call{"add", "uid:1", "r-1", "a \"b\"\n", {}, kTrace};
    const log::Field own[] = {{"outcome", "ok"}, {"code", std::int64_t{-32000}}, {"run_ms", 1.25}, {"empty", ""}};
    const auto log_all = [&] {
        const InCall in_call(call);
        log::write({log::Level::info, "call", own});
    };
    CHECK(
        logged(log_all).ends_with(" info   call function=add principal=uid:1 request_id=r-1 id=\"a \\\"b\\\" \" "
                                  "traceparent=" +
                                  std::string(kTrace) + " outcome=ok code=-32000 run_ms=1.250 empty=\"\"\n"));
    const auto lines = logged_json(log_all);
    REQUIRE(lines.size() == 1);
    const std::regex time("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z");
    CHECK(std::regex_match(lines[0].at("time").get<std::string>(), time));
    nlohmann::json without_time = lines[0];
    without_time.erase("time");
    CHECK(without_time == nlohmann::json{{"level", "info"},
                                         {"message", "call"},
                                         {"function", "add"},
                                         {"principal", "uid:1"},
                                         {"request_id", "r-1"},
                                         {"id", "a \"b\"\n"},
                                         {"traceparent", kTrace},
                                         {"outcome", "ok"},
                                         {"code", -32000},
                                         {"run_ms", 1.25},
                                         {"empty", ""}});
}

TEST_CASE("each line of the JSON log is an object, whatever its text is, and fits into 4 KiB", "[util][log]") {
    const std::string all_bytes = [] {
        std::string bytes;
        for (int i = 0; i < 256; ++i)
            bytes.push_back(static_cast<char>(i));
        return bytes;
    }();
    std::string umlauts;
    while (umlauts.size() < 10'000)
        umlauts += "\xc3\xa4";
    const auto lines = logged_json([&] {
        log::info(all_bytes);
        log::info(umlauts);
        log::info(std::string(10'000, '"'));
        log::info("\xed\xa0\x80 \xc0\xaf \xf5\x80\x80\x80 \xe2\x82");  // surrogate, overlong, too high, cut off
    });
    REQUIRE(lines.size() == 4);
    for (const auto& line : lines)
        CHECK(line.dump().size() <= 4096);
    CHECK(lines[0].at("message").get<std::string>().starts_with(all_bytes.substr(0, 128)));
    CHECK(umlauts.starts_with(lines[1].at("message").get<std::string>()));
    CHECK(lines[1].at("message").get<std::string>().size() > 3'900);
    const std::string unknown = "\xef\xbf\xbd";
    CHECK(lines[3].at("message") == unknown + unknown + unknown + " " + unknown + unknown + " " + unknown + unknown +
                                        unknown + unknown + " " + unknown);
}

TEST_CASE("details are written whole, in lines that cannot be mistaken for others", "[util][log]") {
    std::string details = "first\n\x1b[31msecond";
    for (int i = 0; i < 500; ++i)
        details += "\nframe #" + std::to_string(i);
    const auto log_all = [&] {
        log::write({log::Level::info, "it threw", {}, details});
        log::write({log::Level::info, "it threw", {}, details});
    };
    const auto text = logged(log_all);
    CHECK(text.find(" info   it threw\n    | first\n    |  [31msecond\n    | frame #0\n") != std::string::npos);
    CHECK(text.find("    | frame #499\n") != std::string::npos);
    CHECK(text.ends_with("(1 more times within 10 s) it threw\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 504);
    const auto lines = logged_json(log_all);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("details") == details);
    CHECK(lines[1].at("repeated") == 1);
    CHECK(lines[1].at("message") == "it threw");
    const auto endless = logged_json([] { log::write({log::Level::info, "x", {}, std::string(1 << 20, 'x')}); });
    CHECK(endless.at(0).at("details").get<std::string>().size() == log::kMaxDetails);
}

TEST_CASE("lines are equal if level, text and function are; lines of calls are all written", "[util][log]") {
    const auto text = logged([] {
        for (const char* request : {"r-1", "r-2", "r-3"}) {
            for (const char* function : {"f", "g"}) {
                const CurrentCall call{function, "uid:1", request, {}, {}, {}};
                const InCall in_call(call);
                log::warn("the same");
                log::write({.level = log::Level::warn, .message = "call", .folds = false});
            }
        }
    });
    CHECK(text.find("warn   the same function=f principal=uid:1 request_id=r-1\n") != std::string::npos);
    CHECK(text.find("warn   (2 more times within 10 s) the same function=f\n") != std::string::npos);
    CHECK(text.find("warn   (2 more times within 10 s) the same function=g\n") != std::string::npos);
    CHECK(std::count(text.begin(), text.end(), '\n') == 2 + 2 + 6);
}

TEST_CASE("the last line is an object in the JSON log", "[util][log]") {
    const auto lines = logged_json([] {
        const CurrentCall call{"f", "uid:1", "r-1", "a\"b\\c\nd", "t-1", {}};
        const InCall in_call(call);
        write_last_line("why");
        write_last_line(std::string(5'000, 'x'));
    });
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("level") == "error");
    CHECK(lines[0].at("message") == "why");
    CHECK(lines[0].at("function") == "f");
    CHECK(lines[0].at("task") == "t-1");
    CHECK(lines[0].at("time").get<std::string>().substr(0, 10) ==
          iso8601(std::chrono::system_clock::now()).substr(0, 10));
}

TEST_CASE("a file gets its lines, also after it was moved away", "[util][log]") {
    const test::TemporaryFolder folder;
    const std::string path = folder.file("lines"), moved = folder.file("moved");
    {
        log::LineFile file(path);
        file.write("first");
        REQUIRE(test::eventually([&] { return test::text_of_file(path) == "first\n"; }));
        std::filesystem::rename(path, moved);
        std::this_thread::sleep_for(std::chrono::milliseconds(1'100));  // how often it looks
        file.write("second");
        CHECK(test::eventually([&] { return file.flush(); }));
        CHECK(test::text_of_file(path) == "second\n");
    }
    CHECK(test::text_of_file(moved) == "first\n");
    log::LineFile(path).write("third");  // its end waits for no more than a second
    CHECK(test::eventually([&] { return test::text_of_file(path) == "second\nthird\n"; }));
    CHECK_THROWS_WITH(log::LineFile("/no/such/folder/lines"),
                      Catch::Matchers::ContainsSubstring("/no/such/folder/lines"));
}

TEST_CASE("a file that takes no lines blocks nobody, and what is lost is in the log", "[util][log]") {
    const auto text = logged([] {
        log::LineFile full("/dev/full");
        full.write("lost");
        const test::TemporaryFolder folder;
        const std::string path = folder.file("pipe");
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
        const UniqueFd unread(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        log::LineFile stuck(path);
        const std::string line(200, 'x');
        for (std::size_t i = 0; i < 2 * log::LineFile::kMaxWaiting; ++i)
            stuck.write(line);
        CHECK(test::eventually([] {  // the end of `full` waits for no more than a second
            const auto lines = log::last_lines({}, 1000).lines;
            return std::any_of(lines.begin(), lines.end(), [](const log::KeptLine& one) {
                return one.text.find("lines are lost: /dev/full") != std::string::npos;
            });
        }));
    });  // its destructor does not wait for the reader
    CHECK(text.find("lines are lost: /dev/full cannot be written: No space left on device\n") != std::string::npos);
    CHECK(text.find("/pipe is not written as fast as lines come") != std::string::npos);
}

TEST_CASE("levels have names; an unknown one names the choices", "[util][log]") {
    CHECK(log::parse_level("trace") == log::Level::trace);
    CHECK(log::parse_level("off") == log::Level::off);
    CHECK_THROWS_WITH(log::parse_level("loud"),
                      "unknown log level \"loud\": use trace, debug, info, warn, error or off");
    CHECK(log::name_of(log::Level::warn) == "warn");
    CHECK(log::parse_format("json") == log::Format::json);
    CHECK_THROWS_WITH(log::parse_format("xml"), "unknown log format \"xml\": use text or json");
}

TEST_CASE("lines are kept while nobody reads standard error", "[util][log]") {
    const Pipe pipe = small_pipe();
    const std::uint64_t before = log::last_lines({}, 1).next;
    const Redirected redirected(pipe.write_end.get());
    for (int i = 0; i < 20; ++i)
        log::error("line ", i, std::string(1'000, 'x'));
    log::error("the end");
    const auto lines = log::last_lines(before, 1000).lines;
    const auto is_one = [](const log::KeptLine& line) { return line.text.starts_with("line "); };
    CHECK(std::count_if(lines.begin(), lines.end(), is_one) == 20);
    CHECK(lines.back().text == "the end");
    text_until(pipe.read_end, "the end\n");
}
