from django.db import migrations, models

STRATEGIES = [
    ("evolving", "Evolving"), ("fixed", "Fixed"), ("single", "Single"),
    ("random", "Random"), ("climbing", "Climbing"), ("shuffled", "Shuffled"),
]


class Migration(migrations.Migration):

    dependencies = [("teams", "0004_imports")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="label",
            field=models.CharField(blank=True, default="", help_text="what an experiment calls it", max_length=120),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="run",
            name="strategy",
            field=models.CharField(blank=True, choices=STRATEGIES, max_length=20),
        ),
    ]
