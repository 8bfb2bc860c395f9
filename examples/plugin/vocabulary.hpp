#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <shared_tensor/object.hpp>

namespace example {

/// Words and their numbers. Stays in the server; callers hold handles of it.
class Vocabulary {
public:
    explicit Vocabulary(std::vector<std::string> words) : words_(std::move(words)) {}

    int number_of(const std::string& word) const {
        const auto found = std::find(words_.begin(), words_.end(), word);
        return found == words_.end() ? -1 : static_cast<int>(found - words_.begin());
    }
    void add(const std::string& word) { words_.push_back(word); }
    std::size_t size() const { return words_.size(); }

private:
    std::vector<std::string> words_;
};

}  // namespace example

SHARED_TENSOR_OBJECT("example.vocabulary", example::Vocabulary);
