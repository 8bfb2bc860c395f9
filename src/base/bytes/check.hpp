#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

/// For bugs in this program, not for bad input: throws std::logic_error with the expression and its file and line.
#define SHARED_TENSOR_CHECK(condition, message)                                                             \
    do {                                                                                                    \
        if (!(condition)) [[unlikely]] {                                                                    \
            throw std::logic_error(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition + \
                                   " does not hold: " + (message));                                         \
        }                                                                                                   \
    } while (false)

/// For system calls: a negative result throws std::system_error with `what` and the text of errno.
#define SHARED_TENSOR_CHECK_ERRNO(call, what)                              \
    [&](auto result) {                                                     \
        if (result < 0) [[unlikely]]                                       \
            throw std::system_error(errno, std::generic_category(), what); \
        return result;                                                     \
    }(call)
