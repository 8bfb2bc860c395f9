#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "service/execution.hpp"
#include "util/guarded.hpp"
#include "util/owned_table.hpp"

namespace shared_tensor::service {

using shared_tensor::IdempotencyLimits;

/// What a key once led to, so that a repeated request is never a second run: a plain call's execution or a task's id.
using KeyedRun = std::variant<std::shared_ptr<Execution>, std::string>;

/// The idempotency keys of the last minutes. A key belongs to a principal and a method. It is known while its run goes
/// on, however long that takes and however many there are (the queue and the task table bound them), and for `window`
/// after its end; of the ended ones the oldest go first when there are too many. Thread safety: all methods from any
/// thread.
class IdempotencyTable {
public:
    IdempotencyTable(IdempotencyLimits limits, const Clock& clock) : limits_(limits), clock_(&clock) {}

    struct Known {
        KeyedRun run;
        bool same_arguments;
    };
    /// What is known under `key`; `arguments` is compared with those of the first request.
    std::optional<Known> find(const std::string& key, const std::string& arguments) const;

    /// Keeps `run` under `key` unless another request was first: then that one is returned.
    std::optional<Known> insert(const std::string& key, const std::string& arguments, KeyedRun run);
    /// Forgets a key whose run was refused before it began, so that the client may try again.
    void forget(const std::string& key);

    /// The run under `key` ended with a result of that many bytes, which its key keeps alive.
    void ended(const std::string& key, std::uint64_t bytes);

    void expire();
    std::size_t size() const;

private:
    struct Keyed {
        std::string arguments;
        KeyedRun run;
    };
    using Keys = OwnedTable<Keyed, std::monostate>;  ///< those whose run goes on have no deadline
    using Gone = std::vector<Keyed>;                 ///< destroyed without the lock: results may be large
    void drop_old(Keys& keys, SteadyTime now, Gone& gone) const;
    static std::optional<Known> known(const Keys& keys, const std::string& key, const std::string& arguments,
                                      SteadyTime now);

    IdempotencyLimits limits_;
    const Clock* clock_;
    Guarded<Keys> keys_;
};

}  // namespace shared_tensor::service
