// The links that the collectives of a step use, by the axes that they are over: NVLink within a host, or the network.
#include "passes/report/facts.h"
#include "ir/base/ints.h"

typedef struct { Axes over; Party party; double seconds, exposed; } LinkFact;
typedef VEC(LinkFact) LinkFacts;

static const Op *collective(const Facts *r, int i) { // action i of the step, if it moves anything between ranks
    const SimAction *c = &r->sim.actions[i];
    return c->work == WORK_COLLECTIVES && hd_collective_ranks(c->op) > 1 ? c->op : NULL;
}

static LinkFacts links(const Facts *r, Arena *a) {
    LinkFacts all = {0};
    for (int i = 0; i < r->sim.n_actions; i++) {
        const Op *o = collective(r, i);
        if (!o) continue;
        const Axes over = hd_axes(&hd_named(o, A_COMM)->attrs, A_OVER);
        int k = 0;
        while (k < all.n && all.at[k].over != over) k++;
        const LinkFact fact = {.over = over, .party = hd_party(r->device, o)};
        if (k == all.n) hd_push(a, &all, fact);
        all.at[k].seconds += r->sim.actions[i].end - r->sim.actions[i].start;
        all.at[k].exposed += r->sim.actions[i].exposed;
    }
    return all;
}

void hd_report_links_json(const Facts *r, Out *o) {
    Arena *a = hd_arena_new();
    const LinkFacts all = links(r, a);
    for (int i = 0; i < all.n; i++) {
        const LinkFact *l = &all.at[i];
        hd_puts(o, i ? ",\n      " : "    \"links\": [\n      ");
        hd_put_json(o, "{\"axes\": \"%s\", \"ranks\": %lld, \"ranks_per_host\": %lld, \"link\": \"%s\", ",
                    hd_axes_text(a, l->over), ll(l->party.ranks), ll(l->party.on_host),
                    hd_link_text(hd_link(l->party)));
        hd_put_json(o, "\"seconds\": %.9f, \"exposed_communication\": %.9f}", l->seconds, l->exposed);
    }
    if (all.n) hd_puts(o, "],\n");
    hd_arena_free(a);
}

void hd_report_links_text(const Facts *r, Out *o) {
    Arena *a = hd_arena_new();
    const LinkFacts all = links(r, a);
    for (int i = 0; i < all.n; i++) {
        const LinkFact *l = &all.at[i];
        hd_show(o, "over %s: %lld ranks, ", hd_axes_text(a, l->over), ll(l->party.ranks));
        if (hd_link(l->party) == LINK_NVLINK) hd_puts(o, "on one host by nvlink");
        else hd_show(o, "%lld per host, by the network", ll(l->party.on_host));
        hd_show(o, ": %.3f ms, exposed %.3f\n", 1e3 * l->seconds, 1e3 * l->exposed);
    }
    hd_arena_free(a);
}

int hd_report_link_notes(const Facts *r, Arena *a, const char **notes) {
    int64_t most[N_LINKS] = {0}, table[N_LINKS] = {0};
    bool lent = false;
    int n = 0;
    for (int i = 0; i < r->sim.n_actions; i++) {
        const Op *o = collective(r, i);
        if (!o) continue;
        const Party p = hd_party(r->device, o);
        const bool lends = hd_link(p) == LINK_NETWORK && !hd_model_most_ranks(r->device, o->kind, LINK_NETWORK);
        const int64_t ranks[N_LINKS] = {lends ? p.ranks : p.on_host, lends ? 0 : p.ranks / p.on_host};
        lent |= lends;
        for (int l = 0; l < N_LINKS; l++) {
            const int64_t known = hd_model_most_ranks(r->device, o->kind, (Link)l);
            if (ranks[l] > 1 && ranks[l] > known && ranks[l] > most[l]) most[l] = ranks[l], table[l] = known;
        }
    }
    static const char *const of[N_LINKS] = {"ranks", "hosts"};
    for (int l = 0; l < N_LINKS; l++)
        if (most[l])
            notes[n++] = hd_sprintf(a, "collectives among %lld %s: the table goes to %lld", ll(most[l]), of[l],
                                    ll(table[l]));
    if (lent) notes[n++] = "collectives over hosts at the rate of nvlink: the table has no lines of the network; they "
                           "take more time";
    return n;
}
