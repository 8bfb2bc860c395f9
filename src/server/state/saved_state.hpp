#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <shared_tensor/server.hpp>

#include "base/concurrency/guarded.hpp"
#include "base/system/descriptor_store.hpp"
#include "runtime/calls/dispatcher.hpp"
#include "runtime/calls/run_records.hpp"
#include "runtime/tables/tensor_store.hpp"
#include "server/files/named_tensors.hpp"
#include "server/state/record_file.hpp"
#include "server/state/saved_tensor.hpp"

namespace shared_tensor::server {

/// What of a server outlives its process: named tensors with their versions, finished tasks, and idempotency keys. It
/// is in memory whose descriptors a service manager holds (DescriptorStore): records (RecordFile), and the elements of
/// tensors where they lie. So a process that is killed at any time loses nothing that a client was told of.
/// Thread safety: all methods from any thread.
class SavedState final : public runtime::RunRecords {
public:
    /// Null if there is no service manager that keeps descriptors. `pool` has the segments of named tensors, and
    /// outlives the result. Throws std::exception.
    static std::unique_ptr<SavedState> open(const StateOptions& options, local::SegmentPool& pool);
    SavedState(const StateOptions& options, local::SegmentPool& pool);
    ~SavedState() override;

    /// Part of the tags of named tensors. Another value after a start that found no state.
    const std::string& epoch() const { return epoch_; }

    /// Saves the elements of `value`, which is not published yet. Returns what published() needs. Throws NotStored,
    /// std::bad_alloc, std::system_error.
    std::string save(NamedValue& value) const;
    /// Called for each version before readers see it. Throws std::bad_alloc.
    void published(const runtime::Named& named, const std::string& saved);
    void removed(const runtime::Named& last);

    void task_ended(const tasks::TaskInfo& task) noexcept override;
    void task_gone(const std::string& id) noexcept override;
    void key_started(const std::string& key, const std::string& arguments, const std::string& task) override;
    void key_ended(const std::string& key, const std::string& arguments,
                   const runtime::CallOutcome& outcome) noexcept override;
    void key_gone(const std::string& key) noexcept override;

    /// Fills the tables of a new server with what an earlier process saved. What cannot be restored is logged.
    void restore(runtime::TensorStore& names, runtime::Dispatcher& runs);
    /// The process serves: what it did not restore may go.
    void begin();
    /// The process ends: everything stays as it is for the next one.
    void close();
    codec::Json to_json() const;  ///< for server.info
    DescriptorStore::Use use() const { return store_.use(); }

private:
    struct Counts {
        std::size_t names = 0, tasks = 0, keys = 0, lost = 0;
    };
    void restore_name(std::string_view record, runtime::TensorStore& names);
    void restore_task(const codec::Json& record, tasks::TaskTable& tasks);
    void restore_key(const codec::Json& record, runtime::Dispatcher& runs);
    void hold(std::string result, TensorSaver::Memory memory);
    std::vector<std::string> all(char kind) const;
    template <class Restore>
    bool attempt(Restore restore_one);

    DescriptorStore store_;
    const TensorSaver saver_;
    const DescriptorStore::StoredPointer memory_;  // of the records
    RecordFile records_;
    std::string epoch_;
    Guarded<Counts> restored_;
    Guarded<std::map<std::string, std::uint64_t>> floors_;                   // highest removed version of each owner
    Guarded<std::unordered_map<std::string, TensorSaver::Memory>> results_;  // of tasks and keys
};

}  // namespace shared_tensor::server
