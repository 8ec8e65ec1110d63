"""Members of OpenMP's teams, and tasks of IML, in gdb: `info members`, `member`, `member apply`.

gdb knows the threads of a process. Margay's libraries run the members of a team on as many threads as there are cores, so that most
members are suspended, on stacks of which gdb does not know. This script finds them by the libraries' description of themselves
(the symbol `margay_threads_description`; `sys/threads/src/inspect.rs` in the sources defines it), without debug information. It reads
memory and nothing else: it works with running processes and with core files.
"""

import gdb
import gdb.unwinder

SYMBOL = "margay_threads_description"
MAGIC = b"margayth"
VERSION = 1
WAITS = ["", "barrier", "end of region", "tasks", "lock or critical", "ordered", "event"]
LINE = "  %-8s %-16s %-10s %-17s %s"
# Libraries in which a program waits, but whose lines are not its own.
SYSTEM = ("libc.so", "libc-", "libpthread", "ld-linux", "ld-", "libm.so", "libgcc_s", "linux-vdso")
# How far below the stack pointer of the function that suspends a fiber the switch saves its registers.
SEARCHED_BYTES = 1024
# A list that is longer than this is no list.
MOST_RECORDS = 1 << 20


class Refused(Exception):
    """Why there is nothing to show."""


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def word(address):
    return int.from_bytes(read(address, 8), "little")


def half(address):
    return int.from_bytes(read(address, 4), "little")


# What a switch leaves of a stack's registers, by architecture: `resumed` is the code at which a suspended fiber goes on.


class X86:
    resumed = bytes.fromhex("554889 66f0 488d6208 5b5d")

    @staticmethod
    def suspended(at):
        for saved in range(at - 24, at - SEARCHED_BYTES, -8):
            pc = word(saved)
            try:
                if read(pc, len(X86.resumed)) != X86.resumed:
                    continue
            except gdb.MemoryError:
                continue
            return {"rip": pc, "rsp": saved + 24, "rbp": word(saved + 16), "rbx": word(saved + 8)}
        return None

    @staticmethod
    def parent(link):
        return {"rip": word(link + 8), "rsp": link + 24, "rbp": word(link), "rbx": word(link + 16)}

    pc, sp = "rip", "rsp"


class Arm:
    resumed = bytes.fromhex("fd7bbea9 f30b00f9")

    @staticmethod
    def suspended(at):
        for saved in range(at - 32, at - SEARCHED_BYTES, -16):
            pc = word(saved + 16)
            try:
                if read(pc, len(Arm.resumed)) != Arm.resumed:
                    continue
            except gdb.MemoryError:
                continue
            return {"pc": pc, "sp": saved + 32, "x29": word(saved + 8), "x19": word(saved)}
        return None

    @staticmethod
    def parent(link):
        return {"pc": word(link + 8), "sp": link + 32, "x29": word(link), "x19": word(link + 16)}

    pc, sp = "pc", "sp"


def machine():
    name = gdb.selected_inferior().architecture().name()
    if name.startswith("i386:x86-64"):
        return X86
    if name.startswith("aarch64"):
        return Arm
    raise Refused("members can be shown on x86-64 and aarch64, not on " + name)


# What stands in memory.


class Stack:
    """A stack: that of a fiber, or a thread's own."""

    def __init__(self, thread, registers, name):
        # The kernel's number of the thread; its registers while it is suspended, else None.
        self.thread, self.registers, self.name = thread, registers, name


class Member:
    def __init__(self, team, number, address, record):
        self.team, self.number, self.address = team, number, address
        self.home, self.wait = word(record), half(record + 8)
        self.is_unclaimed = False
        self.stack = None
        # The members that run on the same stack: the next one inwards.
        self.inner = None

    def name(self):
        return "%d.%d" % (self.team.number, self.number)

    def has_begun(self):
        return self.stack is not None

    def state(self):
        if self.is_unclaimed:
            return "not begun"
        if self.home == 0:
            return "over"
        if self.stack is None:
            return "unknown"
        return "suspended" if self.stack.registers else "running"

    def waits(self):
        if not self.has_begun():
            return ""
        if self.inner is not None:
            other = self.inner
            return "member " + other.name() if other.team is self.team else "team %d" % other.team.number
        if self.wait:
            return WAITS[self.wait] if self.wait < len(WAITS) else "?"
        return "its turn" if self.stack.registers else ""


class Task:
    """A stack without a member: a task of IML."""

    def __init__(self, number, stack):
        self.number, self.stack, self.inner, self.home = number, stack, None, 0

    def name(self):
        return "0.%d" % self.number

    def has_begun(self):
        return True

    def state(self):
        return "suspended" if self.stack.registers else "running"

    def waits(self):
        return ""


class Team:
    def __init__(self, record):
        self.size, classes = half(record + 8), half(record + 12)
        site, level, parent, members, size, records, first, distance = (word(record + 16 + 8 * at) for at in range(8))
        self.site = word(site)
        self.level = half(level)
        self.parent_address = word(parent)
        self.number = 0
        self.parent = None
        self.members = []
        self.span = (members, members + size * self.size)
        if self.site == 0 or self.level == 0:
            return
        for at in range(self.size):
            self.members.append(Member(self, at, members + at * size, word(records + 8 * at)))
        for at in range(classes):
            unclaimed = word(first + at * distance)
            begin, end = unclaimed & 0xFFFFFFFF, unclaimed >> 32 & 0x7FFFFFFF
            step = 1 if unclaimed >> 63 else classes
            for number in range(begin, min(end, self.size), step):
                if number != 0 and self.members[number].home == 0:
                    self.members[number].is_unclaimed = True


def records(first):
    at = word(first)
    for _ in range(MOST_RECORDS):
        if at == 0:
            return
        yield at
        at = word(at)


class View:
    """The teams of one library of the process."""

    def __init__(self, description):
        if read(description, 8) != MAGIC:
            raise Refused("the process is not running yet")
        version = half(description + 8)
        if version != VERSION:
            raise Refused(
                "the library's description has version %d, this script knows %d: use the script of the library's"
                " installation" % (version, VERSION)
            )
        self.library = gdb.solib_name(description)
        self.machine = machine()
        self.fibers, self.running, self.threads = [], {}, []
        for record in records(description + 16):
            self.add_fiber(record)
        for record in records(description + 24):
            thread = half(record + 8)
            if thread:
                self.threads.append((word(record + 16), thread, half(record + 12)))
        teams = [Team(record) for record in records(description + 32)]
        self.teams = self.in_order([team for team in reversed(teams) if team.members])
        self.tasks = []
        self.place()

    def add_fiber(self, record):
        thread, base, limit, at = half(record + 8), word(record + 16), word(record + 24), word(record + 32)
        if thread == 0:
            return
        try:
            link = word(base - 16)
        except gdb.MemoryError:
            return
        if at == 0 and link == 0:
            # Not begun.
            return
        registers = self.machine.suspended(at) if at else None
        if at and registers is None:
            return
        stack = Stack(thread, registers, "fiber")
        self.fibers.append((limit, base, stack))
        if not at:
            self.running[thread] = link

    def own_stack(self, thread):
        link = self.running.get(thread)
        return Stack(thread, self.machine.parent(link) if link else None, "thread")

    def in_order(self, teams):
        """Teams inside of others after these."""
        ordered = []
        for team in teams:
            for other in teams:
                begin, end = other.span
                if begin <= team.parent_address < end:
                    number = (team.parent_address - begin) * other.size // (end - begin)
                    team.parent = other.members[number]

        def enter(team):
            ordered.append(team)
            team.number = len(ordered)
            for inner in teams:
                if inner.parent is not None and inner.parent.team is team:
                    enter(inner)

        for team in teams:
            if team.parent is None:
                enter(team)
        return ordered

    def place(self):
        """Finds the stacks of members."""
        own = {}
        on_stack = {}
        for team in self.teams:
            for member in team.members:
                if member.home == 0:
                    continue
                for limit, base, stack in self.fibers:
                    if limit <= member.home < base:
                        member.stack = stack
                        break
                else:
                    if self.threads:
                        _, thread, _ = min(self.threads, key=lambda entry: abs(entry[0] - member.home))
                        if thread not in own:
                            own[thread] = self.own_stack(thread)
                        member.stack = own[thread]
                if member.stack is not None:
                    on_stack.setdefault(id(member.stack), []).append(member)
        for members in on_stack.values():
            members.sort(key=lambda member: member.home)
            for inner, outer in zip(members, members[1:]):
                outer.inner = inner
        used = set(on_stack)
        loose = [stack for _, _, stack in self.fibers if id(stack) not in used]
        loose += [
            self.own_stack(thread)
            for _, thread, number in self.threads
            if number == 0 and thread not in own and thread in self.running
        ]
        for stack in loose:
            self.tasks.append(Task(len(self.tasks) + 1, stack))

    def all(self):
        for team in self.teams:
            yield from team.members
        yield from self.tasks


def descriptions():
    if gdb.selected_inferior().pid == 0 and not gdb.selected_inferior().threads():
        raise Refused("there is no process; run the program, attach to it or open a core file")
    try:
        found = [int(gdb.parse_and_eval("(unsigned long)&" + SYMBOL))]
    except gdb.error:
        raise Refused(
            "the process has no library of Margay with threads (libgomp.so.1, libiml.so.1); `margay omp` runs a"
            " program with it"
        )
    names = [objfile.filename or "" for objfile in gdb.objfiles()]
    if any("libgomp.so" in name for name in names) and any("libiml.so" in name for name in names):
        text = gdb.execute("info variables -q ^%s$" % SYMBOL, to_string=True)
        lines = [line.split() for line in text.splitlines()]
        found = sorted({int(line[0], 16) for line in lines if len(line) == 2 and line[1] == SYMBOL})
    return found


def views():
    return [View(address) for address in descriptions()]


# Which member stands for a thread, and how gdb gets from the thread's registers to the member's.


class Selection:
    """While a suspended member is selected, its frames follow the newest one of its thread."""

    # The thread's number, the member's registers, where the thread itself is, and how many of its frames are there: functions that the
    # compiler has put into each other are several.
    thread = None
    registers = None
    here = None
    frames = 0

    @classmethod
    def set(cls, thread, registers):
        """For the selected thread; none clears."""
        cls.registers = None
        gdb.invalidate_cached_frames()
        cls.thread = thread
        if registers is None:
            return
        frame = gdb.newest_frame()
        cls.frames = 1
        while frame.type() == gdb.INLINE_FRAME:
            frame = frame.older()
            cls.frames += 1
        kind = machine()
        cls.here = tuple(int(frame.read_register(name)) for name in (kind.pc, kind.sp))
        cls.registers = registers
        gdb.invalidate_cached_frames()

    @classmethod
    def clear(cls, *_):
        if cls.registers is not None:
            cls.set(None, None)

    @classmethod
    def is_in_force(cls):
        thread = gdb.selected_thread()
        return cls.registers is not None and thread is not None and thread.ptid[1] == cls.thread


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class Unwinder(gdb.unwinder.Unwinder):
    def __init__(self):
        super().__init__("margay-members")

    def __call__(self, pending):
        if Selection.registers is None or not Selection.is_in_force():
            return None
        kind = machine()
        if Selection.here != tuple(int(pending.read_register(name)) for name in (kind.pc, kind.sp)):
            return None
        registers = Selection.registers
        address = gdb.Value(0).cast(gdb.lookup_type("unsigned long"))
        # Below the member's own frames, as gdb expects of frames that call each other.
        frame = FrameId(address + (registers[kind.sp] - 4096), address + registers[kind.pc])
        info = pending.create_unwind_info(frame)
        for name, value in registers.items():
            info.add_saved_register(name, address + value)
        return info


class ThreadFrame:
    """Leaves out of the backtrace of a member the frames in which its thread is, and those of the library that have no name."""

    name, priority, enabled = "margay-members", 100, True

    def filter(self, frames):
        if not Selection.is_in_force():
            return frames
        libraries = {gdb.solib_name(address) for address in descriptions()}
        return self.shown(frames, libraries)

    @classmethod
    def shown(cls, frames, libraries):
        last, is_empty = None, True
        for frame in frames:
            if cls.is_shown(frame.inferior_frame(), libraries):
                is_empty = False
                yield frame
            last = frame
        # Rather one without a name than none.
        if is_empty and last is not None:
            yield last

    @staticmethod
    def is_shown(frame, libraries):
        """Whether it is of the member's stack and has a name, or is not in the library."""
        if frame.level() < Selection.frames:
            return False
        return frame.name() is not None or gdb.solib_name(frame.pc()) not in libraries


def thread_of(stack):
    for thread in gdb.selected_inferior().threads():
        if thread.ptid[1] == stack.thread:
            return thread
    return None


def is_program(frame, library):
    if frame.type() not in (gdb.NORMAL_FRAME, gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        return False
    name = gdb.solib_name(frame.pc())
    if name is None:
        return True
    return name != library and not name.rsplit("/", 1)[-1].startswith(SYSTEM)


def enter(member):
    """Makes gdb show the stack of a member. Returns false where its thread is gone."""
    thread = thread_of(member.stack)
    if thread is None:
        return False
    Selection.clear()
    thread.switch()
    if member.stack.registers:
        Selection.set(member.stack.thread, member.stack.registers)
    return True


def frames():
    frame = gdb.newest_frame()
    if Selection.is_in_force():
        for _ in range(Selection.frames):
            frame = frame.older()
    while frame is not None and frame.is_valid():
        yield frame
        try:
            frame = frame.older()
        except gdb.error:
            return


def innermost(member, library):
    """The innermost frame in the program of a member whose stack gdb shows."""
    least = member.inner.home if member.inner is not None else 0
    for frame in frames():
        if is_program(frame, library) and int(frame.read_register("sp")) > least:
            return frame
    return None


def place_text(frame):
    if frame is None:
        return ""
    name = frame.name() or "%#x" % frame.pc()
    sal = frame.find_sal()
    if sal is not None and sal.symtab is not None:
        return "%s () at %s:%d" % (name, sal.symtab.filename.rsplit("/", 1)[-1], sal.line)
    return "%s ()" % name


def function_text(address):
    # Before `info symbol`, which leaves out the numbers of the compiler's functions.
    block = gdb.block_for_pc(address)
    while block is not None and block.function is None:
        block = block.superblock
    if block is not None:
        return block.function.name
    text = gdb.execute("info symbol %#x" % address, to_string=True).strip()
    return text.split(" in section ")[0] if " in section " in text else "%#x" % address


class Kept:
    """What is selected, put back at the end."""

    def __enter__(self):
        self.thread = gdb.selected_thread()
        self.selection = (Selection.thread, Selection.registers)
        try:
            self.level = gdb.selected_frame().level()
        except gdb.error:
            self.level = 0
        return self

    def __exit__(self, *_):
        if self.thread is not None and self.thread.is_valid():
            Selection.clear()
            self.thread.switch()
            Selection.set(*self.selection)
        frame = gdb.newest_frame()
        while frame is not None and frame.level() < self.level:
            frame = frame.older()
        if frame is not None:
            frame.select()


def thread_text(stack):
    thread = thread_of(stack)
    return "%s (LWP %d)" % (thread.num if thread is not None else "-", stack.thread)


def line(member, where):
    thread = thread_text(member.stack) if member.stack is not None else ""
    return LINE % (member.name(), thread, member.state(), member.waits(), where)


def table(view):
    head = LINE % ("Member", "Thread", "State", "Waits for", "Where")
    for team in view.teams:
        within = " in member " + team.parent.name() if team.parent is not None else ""
        print(
            "Team %d%s: %d member%s of %s, level %d"
            % (team.number, within, team.size, "" if team.size == 1 else "s", function_text(team.site), team.level)
        )
        print(head)
        for member in team.members:
            frame = innermost(member, view.library) if member.has_begun() and enter(member) else None
            print(line(member, place_text(frame)).rstrip())
    # Idle fibers have no frame in the program.
    loose = [(task, innermost(task, view.library)) for task in view.tasks if enter(task)]
    shown = [(task, place_text(frame)) for task, frame in loose if frame is not None]
    if shown:
        print("Outside of teams:")
        print(head)
        for task, where in shown:
            print(line(task, where).rstrip())
    return bool(view.teams or shown)


def refusing(function):
    def call(self, argument, from_tty):
        try:
            function(self, argument, from_tty)
        except Refused as why:
            raise gdb.GdbError(str(why))
        except gdb.MemoryError as error:
            raise gdb.GdbError("the process's memory cannot be read: %s" % error)

    return call


class InfoMembers(gdb.Command):
    """List the teams of OpenMP and their members, suspended ones included.

For each member: the thread on which it runs or will go on, what it waits for, and its innermost frame in the program.
Tasks of IML are listed as members 0.1, 0.2 and so on."""

    def __init__(self):
        super().__init__("info members", gdb.COMMAND_STATUS)

    @refusing
    def invoke(self, argument, from_tty):
        with Kept():
            shown = [table(view) for view in views()]
        if not any(shown):
            print("No team runs: the program is outside of parallel regions.")


def members(text):
    """The members that TEAM.MEMBER, TEAM or `all` names, with their libraries."""
    found = [(member, view.library) for view in views() for member in view.all()]
    if text != "all":
        found = [
            (member, library)
            for member, library in found
            if member.name() == text or member.name().split(".")[0] == text
        ]
    if not found:
        raise Refused("there is no member %s; `info members` lists them" % text)
    return found


def select(member, library):
    if not member.has_begun():
        raise Refused("member %s has no stack: it is %s" % (member.name(), member.state()))
    if not enter(member):
        raise Refused("the thread of member %s, LWP %d, is gone" % (member.name(), member.stack.thread))
    # Where the program's own frames are all replaced by their last calls, the library's.
    frame = innermost(member, library) or next(frames(), None)
    if frame is not None:
        frame.select()


class MemberCommand(gdb.Command):
    """Select a member: member TEAM.MEMBER, with the numbers of `info members`.

Then bt, frame, up, info locals and the like show the member, also a suspended one, until the process continues, another thread is
selected, or `member off`."""

    def __init__(self):
        super().__init__("member", gdb.COMMAND_STACK, gdb.COMPLETE_NONE, True)

    @refusing
    def invoke(self, argument, from_tty):
        text = argument.strip()
        if text == "off":
            Selection.clear()
            gdb.execute("frame")
            return
        if "." not in text:
            raise Refused("say which: member TEAM.MEMBER, as `info members` lists them, or member off")
        member, library = members(text)[0]
        select(member, library)
        print("[Member %s, %s on thread %s]" % (text, member.state(), thread_text(member.stack)))
        gdb.execute("frame")


class MemberApply(gdb.Command):
    """Run a command for members: member apply all|TEAM|TEAM.MEMBER COMMAND."""

    def __init__(self):
        super().__init__("member apply", gdb.COMMAND_STACK)

    @refusing
    def invoke(self, argument, from_tty):
        which, _, command = argument.strip().partition(" ")
        if not command:
            raise Refused("say for which members, and what: member apply all bt")
        with Kept():
            for member, library in members(which):
                if not member.has_begun() or not enter(member):
                    continue
                frame = innermost(member, library)
                if isinstance(member, Task) and frame is None:
                    continue
                if frame is not None:
                    frame.select()
                waits = ", waits for " + member.waits() if member.waits() else ""
                print("\nMember %s (%s on thread %s%s):" % (member.name(), member.state(), thread_text(member.stack), waits))
                gdb.execute(command)


def set_up():
    gdb.unwinder.register_unwinder(None, Unwinder(), replace=True)
    gdb.frame_filters[ThreadFrame.name] = ThreadFrame()
    gdb.events.cont.connect(Selection.clear)
    gdb.events.exited.connect(Selection.clear)
    InfoMembers()
    MemberCommand()
    MemberApply()


set_up()
