#include "server/state/saved_state.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/bytes/digest.hpp"
#include "base/bytes/ids.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::server {

namespace {

using codec::Json;
using runtime::Named;

constexpr int kFormat = 1;  // of the records; another one is not read
constexpr const char* kRecordsName = "kept-records";

// Kinds of records.
constexpr char kServer = 'e', kName = 'n', kFloor = 'f', kTask = 't', kKey = 'k';

std::string to_text(const Json& record) {
    std::string text;
    Json::to_cbor(record, text);
    return text;
}

Json to_record(std::string_view text) { return Json::from_cbor(text); }

std::int64_t to_number(SystemTime time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
SystemTime to_time(const Json& number) {
    return SystemTime(
        std::chrono::duration_cast<SystemTime::duration>(std::chrono::nanoseconds(number.get<std::int64_t>())));
}

/// The bytes of a text as they are: a key may have any.
Json as_bytes(std::string_view text) { return Json::binary({text.begin(), text.end()}); }
std::string text_in(const Json& bytes) {
    const auto& all = bytes.get_binary();
    return {all.begin(), all.end()};
}

Json to_json_of(const tensor::Manifest& members) {
    Json json = Json::object();
    for (const auto& [name, member] : members)
        json[name] = {name_of(member.dtype), member.shape, member.offset, member.bytes};
    return json;
}
tensor::Manifest manifest_of(const Json& json) {
    tensor::Manifest members;
    for (const auto& [name, one] : json.items()) {
        const auto dtype = parse_dtype(one.at(0).get<std::string>());
        if (!dtype) throw std::runtime_error("it has a dtype that this version does not know");
        members.emplace(name, tensor::Member{*dtype, one.at(1).get<tensor::Shape>(), one.at(2).get<std::uint64_t>(),
                                             one.at(3).get<std::uint64_t>()});
    }
    return members;
}

DescriptorStore::StoredPointer open_records(DescriptorStore& store) {
    if (auto found = store.take(kRecordsName)) return found;
    auto memory = std::make_shared<const UniqueFd>(::memfd_create("shared_tensor_state", MFD_CLOEXEC));
    if (!*memory) throw std::system_error(errno, std::generic_category(), "memfd_create");
    return store.keep(std::move(memory), kRecordsName);
}

std::map<std::string, UniqueFd> given(const StateOptions& options) {
    std::map<std::string, UniqueFd> all;
    for (const auto& [name, descriptor] : options.descriptors)
        all.emplace(name, UniqueFd(descriptor));
    return all;
}

std::string lost_text(std::string_view what, const std::string& name, const std::string& why) {
    return std::string(what) + ' ' + name + " of the earlier process is lost: " + why;
}

}  // namespace

std::unique_ptr<SavedState> SavedState::open(const StateOptions& options, local::SegmentPool& pool) {
    if (options.socket.empty() || options.max_descriptors == 0) return nullptr;
    return std::make_unique<SavedState>(options, pool);
}

SavedState::SavedState(const StateOptions& options, local::SegmentPool& pool)
    : store_(options.socket, options.max_descriptors, given(options)),
      saver_(store_, pool),
      memory_(open_records(store_)),
      records_(memory_->descriptor(), options.max_bytes) {
    records_.for_each(kServer, [&](std::string_view text) {
        const Json record = to_record(text);
        if (record.value("format", 0) == kFormat) epoch_ = record.at("epoch").get<std::string>();
    });
    if (!epoch_.empty()) return;
    records_.clear();
    epoch_ = random_hex(8);
    records_.put(kServer, {}, to_text({{"format", kFormat}, {"epoch", epoch_}}));
}

SavedState::~SavedState() { close(); }

void SavedState::begin() { store_.begin(); }
void SavedState::close() { store_.close(); }

std::string SavedState::save(NamedValue& value) const {
    Json record{{"metadata", Json::object()}};
    for (const auto& [key, text] : value.metadata)
        record["metadata"][key] = text;
    if (!value.is_set() && value.tensor->on_device()) {
        record["lost"] = "it was in the memory of a GPU";
    } else if (!value.is_set()) {
        value.saved = saver_.save(value.tensor);
        record["tensor"] = value.saved->record;
        record["file_bytes"] = value.file_bytes;
    } else {
        Json blocks = Json::array();
        for (NamedBlock& block : value.blocks) {
            if (block.saved == nullptr) block.saved = saver_.save(block.set.data);
            blocks.push_back({{"id", block.id},
                              {"bytes", block.bytes},
                              {"data", block.saved->record},
                              {"members", to_json_of(block.set.manifest)}});
        }
        record["blocks"] = std::move(blocks);
    }
    return to_text(record);
}

/// The record is the length of a short head, the head, and what save() returned: so that little is done here, under the
/// lock of all names.
void SavedState::published(const Named& named, const std::string& saved) {
    const std::string head = to_text({{"owner", named.owner},
                                      {"name", named.name},
                                      {"version", named.version},
                                      {"at", to_number(named.published_at)}});
    const std::uint64_t size = head.size();
    std::string record(sizeof size + head.size() + saved.size(), '\0');
    std::memcpy(record.data(), &size, sizeof size);
    std::memcpy(record.data() + sizeof size, head.data(), head.size());
    std::memcpy(record.data() + sizeof size + head.size(), saved.data(), saved.size());
    records_.put(kName, named.owner + '\0' + named.name, record);
}

void SavedState::removed(const Named& last) {
    floors_.with([&](auto& floors) {
        std::uint64_t& floor = floors[last.owner];
        if (floor >= last.version) return;
        records_.put(kFloor, last.owner, to_text({{"owner", last.owner}, {"version", last.version}}),
                     RecordFile::Room::with_reserve);
        floor = last.version;
    });
    records_.erase(kName, last.owner + '\0' + last.name);
}

void SavedState::hold(std::string result, TensorSaver::Memory memory) {
    if (memory.empty()) return;
    results_.with([&](auto& results) { results.insert_or_assign(std::move(result), std::move(memory)); });
}

void SavedState::task_ended(const tasks::TaskInfo& task) noexcept try {
    if (task.outcome != nullptr && runtime::ended_with_server(*task.outcome)) return;
    TensorSaver::Memory memory;
    Json record{{"id", task.id},
                {"method", task.method},
                {"owner", task.owner},
                {"state", static_cast<int>(task.state)},
                {"created", to_number(task.created_at)},
                {"updated", to_number(task.updated_at)},
                {"ttl", task.ttl.count()},
                {"message", task.message}};
    if (task.fraction) record["fraction"] = *task.fraction;
    if (task.outcome != nullptr) record["outcome"] = saver_.save(*task.outcome, memory);
    hold(kTask + task.id, std::move(memory));
    records_.put(kTask, task.id, to_text(record));
} catch (const std::exception& error) {
    log::warn("the result of task ", task.id, " would be lost with this process: ", error.what());
}

void SavedState::task_gone(const std::string& id) noexcept try {
    records_.erase(kTask, id);
    results_.with([&](auto& results) { return results.extract(kTask + id); });
} catch (const std::exception& error) {
    log::warn("the record of task ", id, " was not removed: ", error.what());
}

void SavedState::key_started(const std::string& key, const std::string& arguments, const std::string& task) {
    Json record{
        {"key", as_bytes(key)}, {"arguments", as_bytes(arguments)}, {"at", to_number(real_clock().wall_time())}};
    if (!task.empty()) record["task"] = task;
    records_.put(kKey, key, to_text(record));
}

void SavedState::key_ended(const std::string& key, const std::string& arguments,
                           const runtime::CallOutcome& outcome) noexcept try {
    TensorSaver::Memory memory;
    const Json record{{"key", as_bytes(key)},
                      {"arguments", as_bytes(arguments)},
                      {"at", to_number(real_clock().wall_time())},
                      {"outcome", saver_.save(outcome, memory)}};
    hold(kKey + key, std::move(memory));
    records_.put(kKey, key, to_text(record));
} catch (const std::exception& error) {
    log::warn("the result of a call with an idempotency key would be lost with this process: ", error.what());
}

void SavedState::key_gone(const std::string& key) noexcept try {
    records_.erase(kKey, key);
    results_.with([&](auto& results) { return results.extract(kKey + key); });
} catch (const std::exception& error) {
    log::warn("the record of an idempotency key was not removed: ", error.what());
}

void SavedState::restore_name(std::string_view text, runtime::TensorStore& names) {
    std::uint64_t size = 0;
    std::memcpy(&size, text.data(), sizeof size);
    const Json head = to_record(text.substr(sizeof size, size)), body = to_record(text.substr(sizeof size + size));
    auto named = std::make_shared<Named>();
    named->owner = head.at("owner").get<std::string>();
    named->name = head.at("name").get<std::string>();
    named->version = head.at("version").get<std::uint64_t>();
    named->published_at = to_time(head.at("at"));
    try {
        if (const auto lost = body.find("lost"); lost != body.end()) throw std::runtime_error(lost->get<std::string>());
        auto value = std::make_shared<NamedValue>();
        for (const auto& [key, one] : body.at("metadata").items())
            value->metadata.emplace(key, one.get<std::string>());
        if (const auto tensor = body.find("tensor"); tensor != body.end()) {
            auto [restored, saved] = saver_.restore(*tensor, named->owner);
            value->tensor = std::move(restored);
            value->saved = std::move(saved);
            value->file_bytes = body.at("file_bytes").get<std::uint64_t>();
        } else {
            for (const Json& one : body.at("blocks")) {
                auto [data, saved] = saver_.restore(one.at("data"), named->owner);
                value->blocks.push_back({one.at("id").get<std::string>(),
                                         {manifest_of(one.at("members")), std::move(data)},
                                         one.at("bytes").get<std::uint64_t>(),
                                         std::move(saved)});
            }
        }
        named->content = std::move(value);
        names.restore(named);
    } catch (const std::exception& error) {
        names.restore_floor(named->owner, named->version);
        removed(*named);
        throw std::runtime_error(
            lost_text("version " + std::to_string(named->version) + " of the named tensor", named->name, error.what()));
    }
}

void SavedState::restore_task(const Json& record, tasks::TaskTable& tasks) {
    tasks::TaskInfo task;
    task.id = record.at("id").get<std::string>();
    task.method = record.at("method").get<std::string>();
    task.owner = record.at("owner").get<std::string>();
    task.state = static_cast<tasks::TaskState>(record.at("state").get<int>());
    task.created_at = to_time(record.at("created"));
    task.updated_at = to_time(record.at("updated"));
    task.ttl = std::chrono::milliseconds(record.at("ttl").get<std::int64_t>());
    task.message = record.at("message").get<std::string>();
    if (const auto fraction = record.find("fraction"); fraction != record.end())
        task.fraction = fraction->get<double>();
    if (const auto outcome = record.find("outcome"); outcome != record.end()) {
        TensorSaver::Memory memory;
        try {
            task.outcome = saver_.restore(*outcome, task.owner, memory);
        } catch (const std::exception& error) {
            task_gone(task.id);
            throw std::runtime_error(lost_text("the result of task", task.id, error.what()));
        }
        hold(kTask + task.id, std::move(memory));
    }
    tasks.restore(std::move(task));
}

void SavedState::restore_key(const Json& record, runtime::Dispatcher& runs) {
    const std::string key = text_in(record.at("key"));
    runtime::KeyedRun run = runtime::OutcomePointer();
    SystemTime ended = real_clock().wall_time();  // a run that was cut: now
    if (const auto task = record.find("task"); task != record.end()) {
        const auto id = task->get<std::string>();
        if (const auto info = runs.tasks().get(id, std::nullopt)) {
            run = id;
            ended = info->updated_at;
        }
    } else if (const auto outcome = record.find("outcome"); outcome != record.end()) {
        TensorSaver::Memory memory;
        try {
            run = saver_.restore(*outcome, key.substr(0, key.find('\0')), memory);
        } catch (const std::exception& error) {
            log::warn(lost_text("the result of a call with an idempotency key", "", error.what()));
        }
        hold(kKey + key, std::move(memory));
        ended = to_time(record.at("at"));
    }
    runs.keys().restore(key, text_in(record.at("arguments")), std::move(run), ended);
}

/// The records of a kind. They are read before they are used, because restoring changes records.
std::vector<std::string> SavedState::all(char kind) const {
    std::vector<std::string> texts;
    records_.for_each(kind, [&](std::string_view text) { texts.emplace_back(text); });
    return texts;
}

/// One record that cannot be restored does not keep the server from starting.
template <class Restore>
bool SavedState::attempt(Restore restore_one) {
    try {
        restore_one();
        return true;
    } catch (const std::exception& error) {
        log::warn(error.what());
        restored_.with([](Counts& counts) { ++counts.lost; });
        return false;
    }
}

void SavedState::restore(runtime::TensorStore& names, runtime::Dispatcher& runs) {
    Counts counts;
    for (const std::string& text : all(kFloor)) {
        attempt([&] {
            const Json record = to_record(text);
            const auto owner = record.at("owner").get<std::string>();
            const auto version = record.at("version").get<std::uint64_t>();
            floors_.with([&](auto& floors) { floors[owner] = version; });
            names.restore_floor(owner, version);
        });
    }
    for (const std::string& text : all(kName))
        counts.names += attempt([&] { restore_name(text, names); }) ? 1 : 0;
    std::vector<Json> tasks;
    for (const std::string& text : all(kTask))
        attempt([&] { tasks.push_back(to_record(text)); });
    std::sort(tasks.begin(), tasks.end(),
              [](const Json& one, const Json& other) { return one.at("created") < other.at("created"); });
    for (const Json& task : tasks)
        counts.tasks += attempt([&] { restore_task(task, runs.tasks()); }) ? 1 : 0;
    for (const std::string& text : all(kKey))
        counts.keys += attempt([&] { restore_key(to_record(text), runs); }) ? 1 : 0;
    restored_.with([&](Counts& kept) {
        counts.lost = kept.lost;
        kept = counts;
    });
    if (counts.names + counts.tasks + counts.keys + counts.lost > 0) {
        log::info("restored ", counts.names, " named tensors, ", counts.tasks, " tasks and ", counts.keys,
                  " idempotency keys of the earlier process; lost: ", counts.lost);
    }
}

Json SavedState::to_json() const {
    const DescriptorStore::Use use = store_.use();
    const Counts restored = restored_.with([](const Counts& counts) { return counts; });
    return {{"kept", !use.gone},
            {"descriptors", use.descriptors},
            {"max_descriptors", use.most},
            {"record_bytes", records_.bytes()},
            {"restored",
             {{"named_tensors", restored.names},
              {"tasks", restored.tasks},
              {"idempotency_keys", restored.keys},
              {"lost", restored.lost}}}};
}

}  // namespace shared_tensor::server
