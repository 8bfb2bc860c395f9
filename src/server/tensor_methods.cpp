#include "server/tensor_methods.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include <shared_tensor/codecs.hpp>

#include "codec/json_sink.hpp"
#include "codec/json_source.hpp"
#include "server/builtin_params.hpp"
#include "util/time_text.hpp"

namespace shared_tensor::server {

namespace {

using codec::JsonSource;
using json_rpc::Json;
using service::make_outcome;
using service::Named;
using service::NamedPointer;
using service::TensorStore;

constexpr std::chrono::milliseconds kMaxTimeout{24LL * 3600 * 1000};
constexpr std::int64_t kMaxVersion = std::numeric_limits<std::int64_t>::max();

Outcome answer(Json json) { return make_outcome(codec::Value{std::move(json), {}}); }

[[noreturn]] void refuse(std::string_view parameter, std::string_view expected, std::string_view got) {
    throw BadParameter(json_rpc::invalid_params(parameter, expected, got));
}

/// A name that something may be published under.
std::string checked_name(const BuiltinParams& params) {
    std::string name = params.text("name");
    if (const std::string fault = service::tensor_name_fault(name); !fault.empty())
        refuse("name", "another name", fault);
    return name;
}

std::optional<std::uint64_t> version_of(const BuiltinParams& params, std::string_view name) {
    const auto version = params.optional_integer(name, 0, kMaxVersion);
    if (!version) return std::nullopt;
    return static_cast<std::uint64_t>(*version);
}

json_rpc::Error conflict(const TensorStore::Refused& refused, std::uint64_t wanted) {
    json_rpc::Error error = json_rpc::invalid_params(
        "if_version", std::to_string(refused.version) + (refused.version > 0 ? ", the version now" : ": there is none"),
        std::to_string(wanted));
    error.data["version"] = refused.version;
    return error;
}

json_rpc::Error error_of(const TensorStore::Refused& refused, std::optional<std::uint64_t> if_version) {
    return refused.conflict ? conflict(refused, if_version.value_or(0)) : json_rpc::out_of_memory(refused.reason);
}

/// The object that a text stands in is written by hand below: such a map may hold names with '$'.
void write_metadata(ValueWriter writer, const NamedMetadata& metadata) {
    Codec<std::map<std::string, std::string>>::write(writer, {metadata.begin(), metadata.end()});
}

class TensorMethods {
public:
    TensorMethods(NamedTensors& names, const std::string& epoch) : names_(&names), epoch_(&epoch) {}

    Outcome put(const BuiltinCall& call) const;
    Outcome get(const BuiltinCall& call) const;
    Outcome list(const BuiltinCall& call) const;
    Outcome remove(const BuiltinCall& call) const;
    Outcome watch(const BuiltinCall& call) const;

private:
    struct Sent;  ///< what tensor.put brings
    Sent read_sent(const JsonSource& source, const BuiltinParams& params) const;
    NamedTensors::Placed place(const std::string& owner, Sent& sent) const;
    Outcome unknown(const NamedPointer& now = nullptr) const;

    NamedTensors* names_;
    const std::string* epoch_;
};

/// Only an admin may name somebody else; for others that one has nothing.
const std::string& owner_of(const BuiltinCall& call, const std::optional<std::string>& named) {
    static const std::string kNobody;
    if (!named || *named == call.principal.name) return call.principal.name;
    return call.principal.admin ? *named : kNobody;
}

Outcome TensorMethods::unknown(const NamedPointer& now) const {
    json_rpc::Error error = json_rpc::unknown_or_expired("tensor", *epoch_);
    if (now != nullptr) error.data["version"] = now->version;
    return make_outcome(std::move(error));
}

struct TensorMethods::Sent {
    codec::TensorPointer tensor;               ///< one
    std::optional<tensor::TensorMap> tensors;  ///< or a set, each by itself
    std::optional<tensor::Manifest> manifest;  ///< or a set in `data`
    codec::TensorPointer data;
    NamedMetadata metadata;

    std::uint64_t bytes() const {
        if (tensor != nullptr) return tensor->bytes();
        if (data != nullptr) return data->bytes();
        std::uint64_t sum = 0;
        for (const auto& [name, one] : *tensors)
            sum += one->bytes();
        return sum;
    }
};

codec::TensorPointer read_tensor(const JsonSource& source, const ValueReader& reader) {
    reader.require(Kind::tensor, "tensor");
    (void)reader.tensor();
    return source.imported(reader.node());
}

void check_member_name(const ValueReader& reader, std::string_view name) {
    if (std::string fault = service::member_name_fault(name); !fault.empty())
        reader.fail("names for members", std::move(fault));
}

TensorMethods::Sent TensorMethods::read_sent(const JsonSource& source, const BuiltinParams& params) const {
    const auto reader = [&](std::string_view name) {
        return ValueReader(source, JsonSource::node(*params.find(name)), name);
    };
    Sent sent;
    const bool one = params.find("tensor") != nullptr, many = params.find("tensors") != nullptr,
               together = params.find("manifest") != nullptr;
    if (one + many + together != 1 || together != (params.find("data") != nullptr))
        refuse("tensor", "exactly one of tensor, tensors, or manifest with data", "another choice");
    if (one) sent.tensor = read_tensor(source, reader("tensor"));
    if (many) {
        const ValueReader members = reader("tensors");
        members.require(Kind::object, "object of tensors");
        if (members.size() > NamedTensors::kMaxMembers)
            members.fail("at most " + std::to_string(NamedTensors::kMaxMembers) + " members",
                         std::to_string(members.size()));
        sent.tensors.emplace();
        members.each_member([&](std::string_view name, const ValueReader& member) {
            check_member_name(members, name);
            sent.tensors->emplace(std::string(name), read_tensor(source, member));
        });
    }
    if (together) {
        sent.data = read_tensor(source, reader("data"));
        if (!tensor::is_bytes(sent.data)) refuse("data", "uint8 tensor of one dimension", "another tensor");
        sent.manifest = tensor::read_manifest(reader("manifest"), sent.data->bytes(), NamedTensors::kMaxMembers);
        for (const auto& [name, member] : *sent.manifest)
            check_member_name(reader("manifest"), name);
    }
    if (params.find("metadata") != nullptr) {
        for (auto& [key, text] : Codec<std::map<std::string, std::string>>::read(reader("metadata")))
            sent.metadata.emplace(key, std::move(text));
        if (const std::string fault = NamedTensors::metadata_fault(sent.metadata); !fault.empty())
            refuse("metadata", "shorter texts", fault);
    }
    return sent;
}

NamedTensors::Placed TensorMethods::place(const std::string& owner, Sent& sent) const {
    NamedTensors::Placed placed = sent.tensor != nullptr ? names_->place(owner, sent.tensor)
                                  : sent.tensors         ? names_->place(owner, *sent.tensors)
                                                         : names_->place(owner, std::move(*sent.manifest), sent.data);
    placed.value->metadata = std::move(sent.metadata);
    return placed;
}

Outcome TensorMethods::put(const BuiltinCall& call) const {
    const BuiltinParams params(call.params,
                               {"name", "tensor", "tensors", "manifest", "data", "metadata", "if_version"});
    const std::string name = checked_name(params);
    const auto if_version = version_of(params, "if_version");
    const std::string& owner = call.principal.name;
    TensorStore& store = names_->store();
    if (store.closed()) return make_outcome(json_rpc::shutting_down());
    try {
        const JsonSource source(call.port, &call.references);
        Sent sent = read_sent(source, params);
        if (auto refused = store.refusal(owner, name, sent.bytes(), if_version))
            return make_outcome(error_of(*refused, if_version));
        NamedTensors::Placed placed = place(owner, sent);
        if (call.memory.failed()) return make_outcome(service::memory_failed());
        const std::uint64_t bytes = placed.value->memory()->bytes();
        auto made = store.put(owner, name, std::move(placed.value), if_version);
        if (auto* refused = std::get_if<TensorStore::Refused>(&made))
            return make_outcome(error_of(*refused, if_version));
        return answer({{"name", name},
                       {"version", std::get<NamedPointer>(made)->version},
                       {"bytes", bytes},
                       {"copied", placed.copied}});
    } catch (const codec::Unresolved& error) {
        return make_outcome(error.error());
    } catch (const InvalidValue& error) {
        refuse(error.path.empty() ? "tensor" : error.path, error.expected, error.got);
    } catch (const std::system_error&) {
        return make_outcome(json_rpc::out_of_memory(
            "the server has no descriptor left for shared memory: start it with a higher limit of open files"));
    } catch (const std::bad_alloc&) {
        return make_outcome(
            json_rpc::out_of_memory("there is no memory for these tensors: delete others, wait until readers let old "
                                    "versions go, or start the server with a higher --max-shared-bytes"));
    }
}

/// The members that were asked for, or all.
tensor::Manifest chosen(const BuiltinParams& params, const tensor::Manifest& all) {
    const Json* list = params.find("members");
    if (list == nullptr) return all;
    if (!list->is_array()) refuse("members", "array of strings", list->type_name());
    tensor::Manifest some;
    for (std::size_t i = 0; i < list->size(); ++i) {
        const Json& name = (*list)[i];
        const auto found = name.is_string() ? all.find(name.get_ref<const std::string&>()) : all.end();
        if (found == all.end())
            refuse("members[" + std::to_string(i) + ']', "the name of a member of the set",
                   name.is_string() ? "another name" : name.type_name());
        some.insert(*found);
    }
    return some;
}

Json placeholder(codec::Value& value, codec::TensorPointer tensor) {
    value.tensors.push_back(std::move(tensor));
    return Json{{"$tensor", value.tensors.size() - 1}};
}

/// Writes into a Value; tensors are handles already.
class Answer {
public:
    Answer() : sink_(value_, port_), root_(sink_, sink_.root()) { root_.object(); }

    ValueWriter member(std::string_view name) { return root_.member(name); }
    void tensor(ValueSink::Node node, codec::TensorPointer tensor) {
        *static_cast<Json*>(node) = placeholder(value_, std::move(tensor));
    }
    void tensor(std::string_view name, codec::TensorPointer handle) {
        tensor(sink_.member(sink_.root(), name), std::move(handle));
    }
    void tensors(std::string_view name, const tensor::TensorSet& set, const tensor::Manifest& manifest) {
        const ValueSink::Node members = sink_.member(sink_.root(), name);
        sink_.object(members);
        for (const auto& [member, place] : manifest)
            tensor(sink_.member(members, member), tensor::member_of(set, place));
    }
    codec::Value take() { return std::move(value_); }

private:
    struct NoPort final : codec::TensorPort {
        codec::TensorPointer import(const Json&) override { throw std::logic_error("import"); }
        codec::TensorPointer wrap(const TensorRef&) override { throw std::logic_error("wrap"); }
        void describe(const codec::TensorPointer&, json_rpc::LongText& out) override { out += "null"; }
    };
    codec::Value value_;
    NoPort port_;
    codec::JsonSink sink_;
    ValueWriter root_;
};

Outcome TensorMethods::get(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"name", "version", "members", "form", "owner"});
    const std::string text = params.text("name");
    const std::string form = params.optional_text("form").value_or("tensors");
    if (form != "tensors" && form != "manifest") refuse("form", "\"tensors\" or \"manifest\"", form);
    const auto version = version_of(params, "version");
    const auto address = NamedTensors::parse_address(text);
    const auto named = names_->store().find(owner_of(call, params.optional_text("owner")), address.name);
    if (named == nullptr) return unknown();
    if (version && *version != named->version) return unknown(named);
    const NamedValue& value = NamedTensors::value_of(*named);
    if ((!value.is_set() || !address.member.empty()) && params.find("members") != nullptr)
        refuse("members", "nothing: this is one tensor", "some");
    Answer result;
    result.member("name").string(text);
    result.member("version").unsigned_integer(named->version);
    if (!value.metadata.empty()) write_metadata(result.member("metadata"), value.metadata);
    if (!address.member.empty()) {
        const auto member = value.set.manifest.find(address.member);
        if (member == value.set.manifest.end()) return unknown(named);
        result.tensor("tensor", tensor::member_of(value.set, member->second));
    } else if (!value.is_set()) {
        result.tensor("tensor", value.tensor);
    } else if (form == "tensors") {
        result.tensors("tensors", value.set, chosen(params, value.set.manifest));
    } else {
        const tensor::TensorSet part = params.find("members") != nullptr
                                           ? tensor::part_of(value.set, chosen(params, value.set.manifest))
                                           : value.set;
        tensor::write_manifest(result.member("manifest"), part.manifest);
        result.tensor("data", part.data);
    }
    return make_outcome(result.take());
}

Json to_json(const Named& named) {
    const NamedValue& value = NamedTensors::value_of(named);
    Json json{{"name", named.name},
              {"owner", named.owner},
              {"version", named.version},
              {"bytes", value.memory()->bytes()},
              {"published_at", iso8601(named.published_at)}};
    if (value.is_set()) {
        json["members"] = value.set.manifest.size();
    } else {
        json["dtype"] = name_of(value.tensor->tensor().dtype());
        json["shape"] = tensor::shape_of(value.tensor);
    }
    return json;
}

Outcome TensorMethods::list(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"prefix", "cursor", "limit"});
    service::NamedFilter filter;
    if (!call.principal.admin) filter.owner = call.principal.name;
    filter.prefix = params.optional_text("prefix").value_or("");
    filter.cursor = params.optional_text("cursor").value_or("");
    if (const auto limit = params.optional_integer("limit", 1, 1000)) filter.limit = static_cast<std::size_t>(*limit);
    const service::NamedPage page = names_->store().list(filter);
    Json list = Json::array();
    for (const NamedPointer& named : page.list)
        list.push_back(to_json(*named));
    Json json{{"tensors", std::move(list)}};
    if (!page.next_cursor.empty()) json["next_cursor"] = page.next_cursor;
    return answer(std::move(json));
}

Outcome TensorMethods::remove(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"name", "if_version", "owner"});
    const std::string name = params.text("name");
    const auto if_version = version_of(params, "if_version");
    auto removed = names_->store().remove(owner_of(call, params.optional_text("owner")), name, if_version);
    if (const auto* refused = std::get_if<TensorStore::Refused>(&removed))
        return make_outcome(error_of(*refused, if_version));
    const auto& gone = std::get<NamedPointer>(removed);
    return gone != nullptr ? answer({{"name", name}, {"version", gone->version}}) : unknown();
}

/// Nobody waits for a client that an earlier item of its batch found gone.
Outcome TensorMethods::watch(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"name", "after_version", "timeout_ms", "owner"});
    const std::string name = checked_name(params);
    const std::uint64_t after = version_of(params, "after_version").value_or(0);
    const SteadyTime now = real_clock().now();
    const auto timeout = params.optional_ms("timeout_ms", kMaxTimeout).value_or(kMaxTimeout);
    const SteadyTime deadline = call.client.known_gone() ? now : std::min(now + timeout, call.wait_end);
    const auto named = names_->store().wait(owner_of(call, params.optional_text("owner")), name, after, deadline,
                                            [&] { return call.client.gone(); });
    if (named == nullptr && after > 0) return unknown();
    const std::uint64_t version = named != nullptr ? named->version : 0;
    if (version == after && names_->store().closed()) return make_outcome(json_rpc::shutting_down());
    return answer({{"name", name}, {"version", version}, {"changed", version != after}});
}

}  // namespace

void add_tensor_methods(Builtins& builtins, NamedTensors& names, const std::string& epoch) {
    const TensorMethods methods(names, epoch);
    builtins.add("tensor.put", [methods](const BuiltinCall& call) { return methods.put(call); });
    builtins.add("tensor.get", [methods](const BuiltinCall& call) { return methods.get(call); });
    builtins.add("tensor.list", [methods](const BuiltinCall& call) { return methods.list(call); });
    builtins.add("tensor.delete", [methods](const BuiltinCall& call) { return methods.remove(call); });
    builtins.add("tensor.watch", [methods](const BuiltinCall& call) { return methods.watch(call); });
}

}  // namespace shared_tensor::server
