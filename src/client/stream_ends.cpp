#include "client/stream_ends.hpp"

#include <algorithm>

#include "client/failure.hpp"
#include "client/outgoing_port.hpp"
#include "codec/frame.hpp"
#include "codec/json_sink.hpp"
#include "json_rpc/json_text.hpp"
#include "util/of_this_process.hpp"

namespace shared_tensor::client {

namespace {

/// Those that travel in no message.
std::uint64_t bytes_of(const codec::Value& value) {
    std::uint64_t bytes = 0;
    for (const codec::TensorPointer& tensor : value.tensors)
        bytes += tensor->bytes();
    return bytes;
}

class ReadSlot final : public detail::ResultSlot {
public:
    explicit ReadSlot(const detail::ItemSource::Read& how) : read_(how) {}
    void read(const ValueReader& reader) override { read_(reader); }

private:
    const detail::ItemSource::Read& read_;
};

class Source final : public detail::ItemSource {
public:
    Source(std::shared_ptr<StreamLine> line, const CallerFlow& flow, std::shared_ptr<void> call)
        : line_(std::move(line)), call_(std::move(call)), name_(flow.info.name), in_(flow.in), turns_(line_->socket) {}

    bool next(const Read& read) override {
        line_->check_process();
        turns_.before_wait([this] { return in_->has_next(); });
        streams::Inflow::Next next = in_->next();
        if (next.taken) line_->say(streams::taken(line_->id, name_, *next.taken));  // leases keep what it names
        if (next.item) {
            const std::uint64_t number = next.item->number;
            ReadSlot slot(read);
            try {
                read_value(std::move(*next.item), *line_, slot);
            } catch (const ResultMismatch& error) {
                throw ResultMismatch(
                    name_ + '[' + std::to_string(number) + ']' + (error.path.empty() ? "" : ".") + error.path,
                    error.expected, error.got);
            }
            return true;
        }
        if (next.closed) line_->check();
        ended_ = true;
        return false;
    }
    void stop() noexcept override {
        if (std::exchange(ended_, true) || !line_->is_here()) return;
        try {
            give_up(in_->close(false), *line_->core);
            line_->say(streams::stop(line_->id, name_));
        } catch (const std::exception&) {  // no memory: the stream stops when its window is full
        }
    }

private:
    const std::shared_ptr<StreamLine> line_;
    const std::shared_ptr<void> call_;  // whose thread reads, where this one does not
    const std::string name_;
    const std::shared_ptr<streams::Inflow> in_;
    http::WebSocketTurns turns_;
    bool ended_ = false;
};

class Sink final : public detail::ItemSink {
public:
    Sink(std::shared_ptr<StreamLine> line, const CallerFlow& flow, std::shared_ptr<detail::CallerStreams> call)
        : line_(std::move(line)),
          call_(std::move(call)),
          name_(flow.info.name),
          out_(flow.out),
          lent_(flow.lent),
          start_(streams::item_start(line_->id, name_)) {}

    bool put(const Write& write) override {
        line_->check_process();
        if (ended_) throw std::logic_error("the stream " + name_ + " was ended: nothing can be written to it");
        if (out_->is_full()) line_->socket->stop_reading_here();
        const auto room = out_->wait();
        if (room == streams::Outflow::Room::over) line_->check();
        if (room != streams::Outflow::Room::free) return false;
        send(write);
        return true;
    }
    void end() override {
        line_->check_process();
        if (!std::exchange(ended_, true)) line_->say(streams::end(line_->id, name_));
    }
    void leave(bool thrown) noexcept override {
        if (ended_ || !line_->is_here()) return;
        ended_ = true;
        try {
            if (!thrown) return line_->say(streams::end(line_->id, name_));
        } catch (const std::exception&) {  // no memory to say that it is whole
        }
        call_->cancel();
    }

private:
    void send(const Write& write) {
        OutgoingPort port(line_->core->ports(), required());
        codec::Value value;
        codec::JsonSink sink(value, port, codec::JsonSink::References::write);
        write(ValueWriter(sink, sink.root()));
        const codec::DescribeObject describe = &handle_of;
        codec::PlaceholderPrinter placeholders(value, port, describe);
        json_rpc::LongText text(start_);
        json_rpc::print_json(value.json, placeholders, text);
        std::string json = text.take_whole();
        std::vector<http::BodyPart> parts;
        std::uint64_t in_message = 0;
        if (port.used() != nullptr) parts = port.used()->parts();
        for (const http::BodyPart& part : parts)
            in_message += part.bytes.size();
        const bool elsewhere = port.used() != nullptr && port.used()->names_memory();
        const std::uint64_t bytes = elsewhere ? bytes_of(value) : 0;
        const std::uint64_t bytes_elsewhere = bytes - std::min(bytes, in_message);
        json += streams::item_end(bytes_elsewhere);
        const std::uint64_t number = out_->sent_items();
        if (elsewhere) lent_->with([&](auto& lent) { lent.emplace_back(number, port.take()); });
        out_->sent(streams::message_bytes(json.size(), in_message) + bytes_elsewhere);
        if (parts.empty()) return line_->say(std::move(json));
        if (!line_->socket->send_from(codec::frame_head(json), std::move(parts))) line_->check();
    }

    /// The server reads the items by the session that the call was made with: memory of a later one would be foreign.
    std::string required() const {
        const bool other = line_->core->ports().session() != line_->memory;
        return other && line_->options.require.empty() ? "body" : line_->options.require;
    }

    const std::shared_ptr<StreamLine> line_;
    const std::shared_ptr<detail::CallerStreams> call_;
    const std::string name_;
    const std::shared_ptr<streams::Outflow> out_;
    const std::shared_ptr<Guarded<CallerFlow::Lent>> lent_;
    const std::string start_;
    bool ended_ = false;
};

}  // namespace

void StreamLine::say(std::string json) const {
    const auto kept = std::make_shared<const std::string>(std::move(json));
    socket->send(false, {{std::as_bytes(std::span(*kept)), kept}});
}

void StreamLine::check_process() const {
    if (!is_here()) throw_of_parent("the call " + method, "call it again here");
}

void StreamLine::check() const {
    const std::exception_ptr error =
        state.with([](const StreamState& now) { return now.outcome ? now.outcome->error : std::exception_ptr(); });
    if (error) std::rethrow_exception(error);
}

bool CallerFlow::taken(std::uint64_t items) const {
    if (!out->taken(items)) return false;
    Lent done;  // goes outside the lock
    lent->with([&](Lent& waiting) {
        for (; !waiting.empty() && waiting.front().first < items; waiting.pop_front())
            done.push_back(std::move(waiting.front()));
    });
    for (const auto& [number, tensors] : done)
        tensors->answered();
    return true;
}

void CallerFlow::all_read() const {
    Lent done;  // goes outside the lock
    lent->with([&](Lent& waiting) { done.swap(waiting); });
    for (const auto& [number, tensors] : done)
        tensors->answered();
}

std::vector<std::string> leases_in(const streams::Item& item) {
    std::vector<std::string> leases;
    if (item.value == nullptr || !item.value->is_structured()) return leases;
    codec::for_each_placeholder(*item.value, [&](const codec::Json& place) {
        const codec::Json& descriptor = place.begin().value();
        const auto lease = descriptor.is_object() ? descriptor.find("lease") : descriptor.end();
        if (descriptor.is_object() && lease != descriptor.end() && lease->is_string())
            leases.push_back(lease->get<std::string>());
    });
    return leases;
}

void give_up(const streams::Item& item, Core& core) noexcept {
    try {
        if (const auto leases = leases_in(item); !leases.empty()) core.ports().give_up(leases);
        if (item.value == nullptr || !item.value->is_structured()) return;
        AnsweredObjects objects(core.objects_of_answers());  // what it has is released with it
        codec::for_each_placeholder(*item.value, [&](const codec::Json& place) {
            if (place.begin().key() == "$object") objects.object(place.begin().value());
        });
    } catch (const std::exception&) {  // no memory, or no handle: it ends with the session
    }
}

void give_up(const std::deque<streams::Item>& items, Core& core) noexcept {
    for (const streams::Item& item : items)
        give_up(item, core);
}

std::shared_ptr<detail::ItemSource> make_source(std::shared_ptr<StreamLine> line, const CallerFlow& flow,
                                                std::shared_ptr<void> call) {
    return shared_in_its_process(new Source(std::move(line), flow, std::move(call)));
}

std::shared_ptr<detail::ItemSink> make_sink(std::shared_ptr<StreamLine> line, const CallerFlow& flow,
                                            std::shared_ptr<detail::CallerStreams> call) {
    return shared_in_its_process(new Sink(std::move(line), flow, std::move(call)));
}

void read_value(streams::Item item, StreamLine& line, detail::ResultSlot& slot) {
    Incoming::of_value(std::move(item.value), item.tensors, std::move(item.owner), line.core->ports(),
                       {line.memory, false, line.core->objects_of_answers(), line.core->fetches(line.options)})
        .result(slot);
}

}  // namespace shared_tensor::client
