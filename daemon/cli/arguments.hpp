#pragma once

#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/detail/call.hpp>

#include "cli/dynamic.hpp"

namespace shared_tensor::cli {

/// The arguments of a call, parsed from words of the command line.
class TypedArguments final : public CallArguments {
public:
    /// Either all words are values, or all are name=value. Reads the files that they name. Throws UsageError.
    explicit TypedArguments(const std::vector<std::string>& words);

    bool empty() const override { return values_.empty(); }
    void write(ValueWriter params) const override;

private:
    std::vector<std::pair<std::string, Dynamic>> values_;  // names are empty for arguments by position
    bool by_name_ = false;
};

/// Parses "3", "[1, 2]", "word", "@file.npy", "@file.json" or "@-". Throws UsageError.
Dynamic read_value(const std::string& word);

}  // namespace shared_tensor::cli
