#include "cli/terminal.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

namespace shared_tensor::cli {

namespace {

constexpr const char* kPlain = "\x1b[0m";
constexpr std::array<int, 3> kEnding{SIGTERM, SIGHUP, SIGINT};

volatile std::sig_atomic_t signal_that_ends = 0;
volatile std::sig_atomic_t noted = -1;  ///< an eventfd; signals wake the wait by it, whichever thread takes them

void note_signal(int signal) {
    const int error = errno;
    if (signal != SIGWINCH) signal_that_ends = signal;
    const std::uint64_t one = 1;
    (void)!::write(noted, &one, sizeof one);
    errno = error;
}

void set_handler(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
}

/// The size of the escape sequence or the character at the beginning of `text`.
std::size_t sequence_size(std::string_view text) {
    if (!text.starts_with("\x1b[")) return 0;
    return std::min(text.find('m'), text.size() - 1) + 1;
}

std::size_t character_size(std::string_view text) {
    std::size_t size = 1;
    while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
        ++size;
    return size;
}

}  // namespace

bool has_colours(int fd) {
    const char* const unwanted = std::getenv("NO_COLOR");
    if (unwanted != nullptr && *unwanted != '\0') return false;
    const char* const kind = std::getenv("TERM");
    return ::isatty(fd) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

std::string styled(Style style, const std::string& text) {
    static const bool wanted = has_colours(STDOUT_FILENO);
    constexpr std::array<const char*, 5> kCodes{"\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"};
    return wanted ? kCodes.at(static_cast<std::size_t>(style)) + text + kPlain : text;
}

std::size_t visible_size(std::string_view text) {
    std::size_t size = 0;
    while (!text.empty()) {
        const std::size_t skipped = sequence_size(text);
        if (skipped == 0) ++size;
        text.remove_prefix(skipped > 0 ? skipped : character_size(text));
    }
    return size;
}

std::string first_characters(std::string_view text, std::size_t width) {
    std::string result;
    for (std::size_t shown = 0; !text.empty();) {
        const std::size_t skipped = sequence_size(text), size = skipped > 0 ? skipped : character_size(text);
        if (skipped > 0 || shown++ < width) result += text.substr(0, size);
        text.remove_prefix(size);
    }
    return result;
}

TerminalSize terminal_size(int fd) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
    return {size.ws_row, size.ws_col};
}

LiveScreen::LiveScreen() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) throw std::runtime_error("standard input is not a terminal");
    noted = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (noted < 0) throw std::runtime_error("no descriptor is left");
    for (const int signal : kEnding)
        set_handler(signal, note_signal);
    set_handler(SIGWINCH, note_signal);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    std::cout << "\x1b[?1049h\x1b[?25l" << std::flush;  // another screen, without a cursor
}

LiveScreen::~LiveScreen() {
    std::cout << "\x1b[?25h\x1b[?1049l" << std::flush;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    for (const int signal : kEnding)
        set_handler(signal, SIG_DFL);
    set_handler(SIGWINCH, SIG_DFL);
    ::close(noted);
}

void LiveScreen::draw(const std::string& picture) {
    const TerminalSize size = terminal_size(STDOUT_FILENO);
    std::string text = "\x1b[H";
    std::string_view rest = picture;
    for (std::size_t row = 0; row < size.rows && !rest.empty(); ++row) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        text += (row == 0 ? "" : "\n") + first_characters(rest.substr(0, end), size.columns) + "\x1b[K";
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    std::cout << text << "\x1b[J" << std::flush;
}

LiveScreen::Key LiveScreen::wait_for_key(std::chrono::milliseconds time) {
    std::array<pollfd, 2> inputs{{{STDIN_FILENO, POLLIN, 0}, {noted, POLLIN, 0}}};
    (void)::poll(inputs.data(), inputs.size(), static_cast<int>(time.count()));
    std::uint64_t signals = 0;
    (void)!::read(noted, &signals, sizeof signals);
    if (signal_that_ends != 0) return Key::quit;
    if (inputs[0].revents == 0) return Key::none;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) != 1) return Key::quit;
    constexpr char kControlC = 3, kControlD = 4;
    return key == 'q' || key == 'Q' || key == kControlC || key == kControlD ? Key::quit : Key::other;
}

int LiveScreen::ended_by() { return signal_that_ends; }

}  // namespace shared_tensor::cli
