#include "util/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "util/unique_fd.hpp"

using namespace shared_tensor;

namespace {

/// Standard error goes elsewhere while it lives; the level is restored too.
class Redirected {
public:
    explicit Redirected(int to) : before_(::dup(STDERR_FILENO)), level_(log::level()) { ::dup2(to, STDERR_FILENO); }
    Redirected(const Redirected&) = delete;
    Redirected& operator=(const Redirected&) = delete;
    ~Redirected() {
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

}  // namespace

TEST_CASE("a line has time, level and text", "[util][log]") {
    const auto text = logged([] { log::info("listening on port ", 2537); });
    CHECK(std::regex_match(
        text, std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z info   listening on port 2537\n")));
}

TEST_CASE("texts of all levels begin in the same column", "[util][log]") {
    const auto text = logged([] {
        log::debug("x");
        log::info("x");
        log::warn("x");
        log::error("x");
        log::write(log::Level::trace, "x");
    });
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        CHECK(line.size() == 33);
    CHECK(std::count(text.begin(), text.end(), '\n') == 5);
}

TEST_CASE("what is below the level is dropped, and its parts are not put together", "[util][log]") {
    struct Costly {
        mutable int printed = 0;
    };
    static Costly costly;
    struct Print {
        static std::ostream& print(std::ostream& out) {
            ++costly.printed;
            return out;
        }
    };
    const auto text = logged(
        [] {
            log::info("quiet", &Print::print);
            log::write(log::Level::info, "quiet");
            log::warn("loud");
        },
        log::Level::warn);
    CHECK(text.find("quiet") == std::string::npos);
    CHECK(text.find("loud") != std::string::npos);
    CHECK(costly.printed == 0);
}

TEST_CASE("off is silent", "[util][log]") {
    CHECK(logged([] { log::error("x"); }, log::Level::off).empty());
}

TEST_CASE("no text can fake a line or talk to the terminal", "[util][log]") {
    const auto text = logged([] { log::info("a\nb\rc\x1b[31m\td\x7f\xc3\xa4"); });
    CHECK(text.ends_with("a b c [31m d \xc3\xa4\n"));
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
                    log::info(std::string(200, static_cast<char>('a' + t)));
            });
        }
    });
    std::istringstream lines(text);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        REQUIRE(line.size() == 232);
        CHECK(line.substr(32) == std::string(200, line.back()));
    }
    CHECK(count == 400);
}

TEST_CASE("a reader that went away costs the line, not the process", "[util][log]") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    UniqueFd read_end(ends[0]);
    const UniqueFd write_end(ends[1]);
    read_end.reset();
    const Redirected redirected(write_end.get());
    log::set_level(log::Level::info);
    log::info("into the void");
    log::info("and again");
    SUCCEED("no SIGPIPE");
}

TEST_CASE("a full disk costs the line only", "[util][log]") {
    const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    REQUIRE(full);
    const Redirected redirected(full.get());
    log::error("nowhere to go");
    SUCCEED();
}

TEST_CASE("levels have names; an unknown one names the choices", "[util][log]") {
    CHECK(log::parse_level("trace") == log::Level::trace);
    CHECK(log::parse_level("warn") == log::Level::warn);
    CHECK(log::parse_level("off") == log::Level::off);
    try {
        log::parse_level("loud");
        FAIL("it did not throw");
    } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()) == "unknown log level \"loud\": use trace, debug, info, warn, error or off");
    }
}
