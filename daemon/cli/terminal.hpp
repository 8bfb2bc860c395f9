#pragma once

#include <sys/types.h>
#include <termios.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace shared_tensor::cli {

/// True if `fd` is a terminal that shows colours, and the user wants them: NO_COLOR is empty, TERM is not "dumb".
bool has_colours(int fd);

enum class Style { bold, dim, red, green, yellow };

/// `text` in this style, if standard output has colours; else `text` itself.
std::string styled(Style style, const std::string& text);

/// The number of characters that a terminal shows of UTF-8 text: without the sequences of styled().
std::size_t visible_size(std::string_view text);

/// The first `width` characters that a terminal shows.
std::string first_characters(std::string_view text, std::size_t width);

struct TerminalSize {
    std::size_t rows = 24, columns = 80;
};
TerminalSize terminal_size(int fd);

/// Takes the whole terminal of standard input and output for a live picture. The destructor gives it back as it was.
/// One at a time. Signals that end the process are noticed by wait_for_key(), so that the terminal is given back.
class LiveScreen {
public:
    LiveScreen();
    LiveScreen(const LiveScreen&) = delete;
    LiveScreen& operator=(const LiveScreen&) = delete;
    ~LiveScreen();

    /// Shows the lines of `picture`, as many and as wide as the terminal has room for.
    void draw(const std::string& picture);

    enum class Key { none, quit, other };
    /// Waits until a key is pressed, the window changes its size, or the time is over. quit: q, Ctrl-C or Ctrl-D, the
    /// end of the input, or a signal that ends the process.
    Key wait_for_key(std::chrono::milliseconds time);

    /// The signal that ended the wait; 0: there was none.
    static int ended_by();

private:
    termios before_{};
};

}  // namespace shared_tensor::cli
