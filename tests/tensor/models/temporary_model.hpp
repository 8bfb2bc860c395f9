#pragma once

#include <memory>
#include <string>

#include "runtime/models/model.hpp"

namespace shared_tensor::test {

/// A file of its own name in the system's folder for such, removed at the end.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& contents = {});
    ~TemporaryFile();
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// A module with the parameter `weight` (one element, 2.0), the buffer `buffer` and the attributes `last` (tensors of
/// one element, 0), `count` (int, 0) and `seen` (an empty List[int]), whose methods are `source`; saved and loaded.
std::shared_ptr<models::Model> model_of(const std::string& source, models::LoadOptions options = {});

}  // namespace shared_tensor::test
