"""Swarm of drones in a box with obstacles, driven by a small policy; many worlds at once."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Config:
    worlds: int = 512
    drones: int = 64
    obstacles: int = 12
    hidden: int = 96
    substeps: int = 20
    dt: float = 0.02
    restitution: float = 0.7
    drag: float = 0.15
    max_speed: float = 3.0
    warmup: int = 5
    steps: int = 50
    device: str = "cuda"


class Policy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, cfg.hidden), nn.Tanh(),
            nn.Linear(cfg.hidden, cfg.hidden), nn.Tanh(),
            nn.Linear(cfg.hidden, 2))

    def forward(self, obs):
        return 4.0 * torch.tanh(self.net(obs))


class Swarm:
    def __init__(self, cfg):
        self.cfg = cfg
        shape = (cfg.worlds, cfg.drones, 2)
        self.pos = torch.rand(shape, device=cfg.device) * 1.8 - 0.9
        self.vel = torch.randn(shape, device=cfg.device) * 0.2
        self.goal = torch.rand(shape, device=cfg.device) * 1.6 - 0.8
        self.centre = torch.rand(cfg.worlds, cfg.obstacles, 2, device=cfg.device) * 1.4 - 0.7
        self.radius = 0.05 + 0.05 * torch.rand(cfg.worlds, cfg.obstacles, device=cfg.device)
        self.reward = torch.zeros(cfg.worlds, device=cfg.device)
        self.bumps = torch.zeros(cfg.worlds, cfg.drones, device=cfg.device)

    def observe(self):
        mean_pos = self.pos.mean(1, keepdim=True).expand_as(self.pos)
        return torch.cat((self.pos, self.vel, self.goal - self.pos, mean_pos - self.pos), dim=-1)

    def walls(self):
        hit = self.pos.abs() > 1.0
        self.vel[hit] = -self.cfg.restitution * self.vel[hit]
        self.pos.clamp_(-1.0, 1.0)

    def nearest_obstacle(self):
        gap = torch.cdist(self.pos, self.centre) - self.radius[:, None, :]
        depth, which = gap.min(dim=-1)
        centre = torch.gather(self.centre, 1, which[..., None].expand(-1, -1, 2))
        return depth, centre

    def obstacles(self):
        depth, centre = self.nearest_obstacle()
        hit = depth < 0
        normal = self.pos - centre
        normal = normal / normal.norm(dim=-1, keepdim=True).clamp_min(1e-6)
        along = (self.vel * normal).sum(-1, keepdim=True).clamp_max(0)
        bounced = self.vel - (1 + self.cfg.restitution) * along * normal
        pushed = self.pos - depth[..., None] * normal
        self.vel[hit] = bounced[hit]
        self.pos[hit] = pushed[hit]
        self.bumps += hit

    def step(self, force):
        cfg = self.cfg
        self.vel += cfg.dt * (force - cfg.drag * self.vel)
        speed = self.vel.norm(dim=-1, keepdim=True)
        self.vel *= (cfg.max_speed / speed.clamp_min(1e-6)).clamp_max(1.0)
        self.pos += cfg.dt * self.vel
        self.walls()
        self.obstacles()
        self.reward -= (self.goal - self.pos).norm(dim=-1).mean(1)


def rollout(swarm, policy, cfg):
    """One control period: the policy acts at each substep of the simulation."""
    swarm.bumps.zero_()
    for _ in range(cfg.substeps):
        swarm.step(policy(swarm.observe()))
    return swarm.reward.mean() - 0.01 * swarm.bumps.mean()


def main():
    cfg = Config()
    torch.manual_seed(4)
    torch.set_float32_matmul_precision("high")
    swarm = Swarm(cfg)
    policy = Policy(cfg).to(cfg.device)
    scores = []
    with torch.inference_mode():
        for _ in range(cfg.warmup):
            rollout(swarm, policy, cfg)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(cfg.steps):
            scores.append(rollout(swarm, policy, cfg))
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        print(f"score {torch.stack(scores)[-1].item():.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
