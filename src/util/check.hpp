#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

/// A bug in this program, not bad input: throws std::logic_error with the expression and the place.
#define SHARED_TENSOR_CHECK(condition, message)                                                             \
    do {                                                                                                    \
        if (!(condition)) [[unlikely]] {                                                                    \
            throw std::logic_error(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition + \
                                   " does not hold: " + (message));                                         \
        }                                                                                                   \
    } while (false)

/// A system call that failed (negative result): throws std::system_error with errno's text behind `what`.
#define SHARED_TENSOR_CHECK_ERRNO(call, what)                              \
    [&](auto result) {                                                     \
        if (result < 0) [[unlikely]]                                       \
            throw std::system_error(errno, std::generic_category(), what); \
        return result;                                                     \
    }(call)
