// What happens later than the instruction that asked for it: copies and matrix products. When it happens is drawn from
// the seed, between its issue and the moment when nothing else can go on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "races.h"
#include "report.h"

namespace emulator {

struct Block;
struct Thread;

/// Copies that one commit has put together.
struct CopyGroup {
    unsigned unread = 0;     // copies that have not read their source yet
    unsigned unwritten = 0;  // and those that have not written their destination
    std::uint64_t batch = 0;  // the last one of its cp.asyncs, once it is committed
};

/// The groups of one thread, numbered in the order of their commits.
struct CopyGroups {
    std::vector<CopyGroup> groups;   // those that somebody may still wait for, and the open one, if any
    std::uint64_t first = 0;         // the number of groups.front()
    std::uint64_t committed = 0;     // this many are; the next one is open
    std::uint64_t read_by_then = 0;  // the thread has waited until those before this one were read
    bool waited_for = false;         // by its thread
    std::uint64_t open_at_wait = 0;  // the number of the group that was open when its thread waited last, + 1

    /// The number of the group that copies join now.
    std::uint64_t open() {
        if (first + groups.size() == committed) groups.emplace_back();
        return committed;
    }
    void commit() {
        open();
        ++committed;
    }
    /// How many groups there are before the last `pending`.
    std::uint64_t before(std::uint64_t pending) const {
        return committed - (pending < committed ? pending : committed);
    }
    /// True of a group that no commit has ended, though its thread has waited since it was begun.
    bool waited_in_vain(std::uint64_t number) const { return number == committed && open_at_wait == number + 1; }
    CopyGroup& operator[](std::uint64_t number) { return groups[number - first]; }
    bool finished(std::uint64_t pending, bool only_read) const;
};

/// An arrival at a barrier, when all the copies that were asked for before it have been made.
struct CopyArrival {
    std::uint64_t* barrier;
    std::uint64_t copies;  // so many were asked for before
    unsigned missing;      // of which so many have not been made
    Knowledge knowledge;
    Place where;
};

/// What a thread has asked for by cp.async. It waits for groups, or lets a barrier wait.
struct ThreadCopies : CopyGroups {
    std::uint64_t asked = 0;
    unsigned under_way = 0;
    std::uint64_t arriving = 0;  // the group of the one that is made now
    /// Of what is asked for now. Each commit and each arrival ends one, so that who waits for it knows of no later copy.
    std::uint64_t batch = 1;
    std::vector<CopyArrival> arrivals;
    std::vector<std::uint64_t> asked_by_commit;  // how many copies each group, and those before it, have
    std::uint64_t waited_for_copies = 0;         // so many of those that were asked for, the first ones

    void commit() {
        (*this)[open()].batch = batch++;
        asked_by_commit.push_back(asked);
        CopyGroups::commit();
    }
    /// The thread has waited for all groups but the last `pending`.
    void note_wait(std::uint64_t pending) {
        if (const std::uint64_t end = before(pending)) waited_for_copies = asked_by_commit[end - 1];
    }
    /// The last batch of the groups that end when all but the last `pending` have ended; 0 if these have already.
    std::uint64_t last_batch(std::uint64_t pending) {
        const std::uint64_t end = before(pending);
        return end > first ? (*this)[end - 1].batch : 0;
    }
};

/// One thing that will happen.
struct AsyncOperation {
    const char* name;  // of the instruction
    Thread* issuer;
    Place where;
    bool must_end_before_block;  // else it may happen when the block is gone, or never
    std::function<void()> happen;
    std::uint64_t due = 0;
};

/// What is under way in a block.
class AsyncQueue {
public:
    /// Forgets everything; how eager operations are in this block is drawn.
    void begin();
    /// What the current thread has just begun.
    void add(AsyncOperation operation);
    /// What goes on by itself where another operation has ended.
    void go_on(AsyncOperation operation);
    /// Lets time go on by one step: does what is due.
    void advance();
    bool empty() const { return heap_.empty(); }
    /// Does what comes next, due or not. False if there is nothing.
    bool happen_next();
    /// The block has ended: does what outlives it; what must not is an error.
    void finish();

private:
    void happen_first();

    std::vector<AsyncOperation> heap_;  // the first one due is on top
    std::uint64_t time_ = 0;
    unsigned percent_at_once_ = 0, percent_late_ = 0;
};

/// Waits until all of the current thread's groups but the last `pending` are read, or written too.
void wait_for_groups(CopyGroups& groups, std::uint64_t pending, bool only_read, const char* name, const Place& where);
/// Before a thread returns: it is an error if something that it has started may still use what is gone then.
void check_finished(const Thread& thread);
/// A copy of the group has read, or written: its thread may go on.
void look_again(Thread& thread, CopyGroups& groups);

}  // namespace emulator
