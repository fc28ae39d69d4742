import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** Why no root can be made here; undefined where it can. */
export function rootMissing(): string | undefined {
  const { status, error } = spawnSync("unshare", [
    "--mount",
    "--propagation",
    "private",
    "mount",
    "-t",
    "tmpfs",
    "none",
    "/mnt",
  ]);
  return error === undefined && status === 0
    ? undefined
    : "mounting in a namespace of one's own needs Linux and root";
}

export interface RunWishes {
  /** What the container has in /app. */
  readonly app: string;
  /** What it has in /run/secrets/sagabox. */
  readonly secrets: string;
  readonly user: string;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

// A root of its own, as a container has: the system's programs, /app and secrets, all read-only; /tmp can be written.
const PREPARE = `
set -e
root=$1; app=$2; secrets=$3; node=$4; user=$5; group=$6; shift 6
mount -t tmpfs -o mode=755 none "$root"
mkdir -p "$root/usr" "$root/etc" "$root/app" "$root/run/secrets/sagabox" "$root/proc" "$root/dev" "$root/tmp" "$root/node"
for link in bin lib lib64 sbin; do [ -L "/$link" ] && cp -P "/$link" "$root/$link" || true; done
for real in bin lib lib64 sbin; do
  if [ -d "/$real" ] && [ ! -L "/$real" ]; then mkdir "$root/$real"; mount --bind "/$real" "$root/$real"; fi
done
bind() { mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"; }
bind /usr "$root/usr"; bind /etc "$root/etc"; bind "$node" "$root/node"; bind "$app" "$root/app"
bind "$secrets" "$root/run/secrets/sagabox"
mount --rbind /dev "$root/dev"; mount -t proc none "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -o remount,ro "$root"
exec chroot "$root" /usr/bin/setpriv --reuid="$user" --regid="$group" --clear-groups --no-new-privs --bounding-set=-all \\
  --inh-caps=-all "$@"
`;

/** Starts a command the way a container would: unprivileged, on a root it cannot write to. The process is its own. */
export function runInRoot({ app, secrets, user, command, env }: RunWishes): ChildProcess {
  const root = mkdtempSync(join(tmpdir(), "sagabox-root-"));
  mkdirSync(root, { recursive: true });
  const [uid = "", gid = uid] = user.split(":");
  const node = dirname(process.execPath);
  const args = [PREPARE, "prepare", root, app, secrets, node, uid, gid, ...command];
  const child = spawn("unshare", ["--mount", "--propagation", "private", "/bin/sh", "-c", ...args], {
    cwd: "/",
    env: { PATH: "/node:/usr/sbin:/usr/bin:/sbin:/bin", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  // The mounts go with the namespace; what is left is the empty folder they were made on.
  child.once("close", () => rmSync(root, { recursive: true, force: true }));
  return child;
}
